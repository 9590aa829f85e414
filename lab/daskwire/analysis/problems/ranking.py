"""Rank findings: problems by cost, each with its consequences, then notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from daskwire.analysis.problems.evidence.intervals import overlap, seconds
from daskwire.analysis.problems.finding import Finding

FOLLOWS_NS = 2_000_000_000  # a consequence begins at most this long after the end of its cause
AT_ONCE_NS = 100_000_000  # what a segment waits for before a reset that it causes


def ranked(findings: list[Finding]) -> list[Finding]:
    """Sort problems by cost, then notes. A consequence becomes a note, and its cost is its cause's."""
    problems = [finding for finding in findings if not finding.is_note]
    consequences = {cause: [effect for effect in problems if _explains(cause, effect)] for cause in problems}
    causes, effects = [], defaultdict(list)
    for finding in problems:
        cause = next((other for other in problems if _is_cause(other, finding, consequences)), None)
        if cause is None:
            causes.append(finding)
        else:
            effects[cause].append(finding)
    ranking = [replace(cause, cost_s=_total_cost_s(cause, effects[cause])) for cause in causes]
    ranking.sort(key=lambda finding: (not finding.kind.is_first, -finding.cost_s))
    notes = [finding for finding in findings if finding.is_note]
    notes += [_as_note(effect, cause) for cause, own in effects.items() for effect in own]
    return ranking + sorted(notes, key=lambda finding: -finding.cost_s)


def _total_cost_s(cause: Finding, effects: list[Finding]) -> float:
    """Add the costs of a cause's consequences to its own.

    While everything stands still, nothing else costs.
    """
    together = [cause, *effects]
    standing = [finding for finding in together if finding.kind.stops_all]
    others = [finding for finding in together if not finding.kind.stops_all]
    times = [finding.when for finding in standing if finding.when]
    standing_s = min(seconds(times), sum(finding.cost_s for finding in standing))
    others_s = sum(f.cost_s * (1.0 - overlap(f.when, times) if f.when else 1.0) for f in others)
    return max(cause.cost_s, standing_s + others_s)


def _is_cause(cause: Finding, effect: Finding, consequences: Mapping[Finding, list[Finding]]) -> bool:
    """Return whether one finding is the cause of another. If each explains the other, the costlier one is.

    Otherwise they would hide each other.
    """
    if effect not in consequences[cause]:
        return False
    return cause.cost_s > effect.cost_s or cause not in _all_consequences(effect, consequences)


def _all_consequences(finding: Finding, consequences: Mapping[Finding, list[Finding]]) -> set[Finding]:
    """Return the consequences of a finding, their consequences, and so on."""
    result: set[Finding] = set()
    pending = [finding]
    while pending:
        new = [effect for effect in consequences[pending.pop()] if effect not in result]
        result.update(new)
        pending += new
    return result


def _as_note(effect: Finding, cause: Finding) -> Finding:
    place = f" of {cause.pair[1]}" if cause.pair[1] else ""
    place += f" to {cause.pair[2]}" if cause.pair[2] else ""
    return replace(effect, is_note=True, what=f"{effect.what} (a consequence of: {cause.kind.name}{place})")


def _explains(cause: Finding, effect: Finding) -> bool:
    """Return whether one finding is a consequence of another: by kind, place and time."""
    if effect.kind.name not in cause.kind.effects or (cause.kind.is_sudden and _begins_before(effect, cause)):
        return False
    return _is_there(cause, effect) and _overlaps(cause, effect)


def _is_there(cause: Finding, effect: Finding) -> bool:
    """Return whether a finding is where another one has its effects.

    A fault of a host affects all its paths. A fault of the path between two hosts affects this path, and what
    the hosts themselves do, but no path of either host to a third one.
    """
    hosts, affected = set(cause.pair[1:]) - {""}, set(effect.pair[1:]) - {""}
    if len(hosts) < 2 or not affected:
        return not hosts or not affected or bool(hosts & affected)
    return affected == hosts or (affected < hosts and not effect.kind.is_on_path)


def _begins_before(first: Finding, second: Finding) -> bool:
    """Return whether a finding begins clearly before another one."""
    return bool(first.when and second.when and first.when[0] < second.when[0] - AT_ONCE_NS)


def _overlaps(first: Finding, second: Finding) -> bool:
    if first.when is None or second.when is None:
        return True
    return max(first.when[0], second.when[0]) - min(first.when[1], second.when[1]) < FOLLOWS_NS
