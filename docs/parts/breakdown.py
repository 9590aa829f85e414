"""Parts of the page about the time breakdown: figure of the stages, causes, rules of advice."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.breakdown.answers.advice import RULES
from dasklab.breakdown.answers.invariants import INVARIANTS
from dasklab.breakdown.model.causes import CAUSES
from dasklab.breakdown.model.stages import SCHEDULER_CHOICE, STAGES, Process, Rule, Stage


def stage_figure() -> str:
    """Return the stages of a task as a sequence diagram in Mermaid."""
    lines = ["sequenceDiagram", *(f"participant {place.name} as {place.value}" for place in Process)]
    lines += [_line(stage) for stage in (*STAGES, SCHEDULER_CHOICE)]
    return "\n".join(["```mermaid", lines[0], *(f"    {line}" for line in lines[1:]), "```"])


def _line(stage: Stage) -> str:
    causes = ", ".join(cause.name for cause in stage.causes)
    text = f"{stage.start} to {stage.stop}: {stage.title}<br/>(causes: {causes})"
    if stage.rule is Rule.MESSAGE:
        sender = next(place for place in Process if place is not stage.place)
        return f"{sender.name}->>{stage.place.name}: {text}"
    return f"Note over {stage.place.name}: {text}"


def cause_table() -> str:
    """Return all causes as a table in Markdown."""
    return "\n".join(["| cause | name | kind | when |", "|---|---|---|---|", *_cause_rows()])


def _cause_rows() -> Iterator[str]:
    for cause in CAUSES:
        yield f"| {cause.title} | `{cause.name}` | {cause.kind.value} | {cause.explanation} |"


def advice_table() -> str:
    """Return all rules of advice as a table in Markdown."""
    rows = [f"| {rule.title} | {rule.threshold} | {rule.remedy}{_link(rule.page)} |" for rule in RULES]
    return "\n".join(["| what | threshold, beside 10 % of the time | advice |", "|---|---|---|", *rows])


def _link(page: str) -> str:
    """Return a link to a page of documentation; nothing without one."""
    return f" [more]({page})" if page else ""


def invariant_list() -> str:
    """Return what holds for every breakdown as a list in Markdown."""
    return "\n".join(f"- {invariant.title} (`{invariant.name}`)" for invariant in INVARIANTS)
