"""What an account says, in words and as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dasklab.breakdown.bandwidth import Belief
from dasklab.breakdown.bottlenecks import CULPRITS, IDLE
from dasklab.breakdown.causes import WORDS, Cell
from dasklab.breakdown.clocks import Clock
from dasklab.breakdown.graphs import STAGES as GRAPH_STAGES
from dasklab.breakdown.graphs import Way, growth, squares
from dasklab.breakdown.run import Run
from dasklab.breakdown.stages import stages
from dasklab.breakdown.summary import Difference, Summary, hosts

TOLD = 0.03  # what is less than this share of a makespan is not told in a sentence
MOST = 4  # nor are more than so many parts
STARVED = 0.1  # of a makespan: to wait longer than this for a CPU is told
Row = tuple[str, ...]
HEAD: Row = ("cause", "seconds", "share", "critical path", "where")
DIFFERENCE_HEAD: Row = ("cause", "before", "after", "difference", "critical path", "where")


def paragraph(found: Summary) -> str:
    """One account."""
    runs = f"{found.runs} run{'s' if found.runs != 1 else ''}"
    threads = f"{found.threads} thread{'s' if found.threads != 1 else ''}"
    shares = sorted(found.by_cause.items(), key=lambda item: -item[1])
    told = [
        f"{seconds / found.makespan_s:.0%} {WORDS[cause]}" for cause, seconds in shares[:MOST] if seconds > 0
    ]
    path = [_culprit(*each) for each in found.ranked()[:MOST] if each[2] > TOLD * found.makespan_s]
    return (
        f"A run took {found.makespan_s:.2f} s on {threads} (mean of {runs}). Their time: {', '.join(told)}."
        f" On the critical path: {', '.join(path)}.{_faster(found)}"
    )


def _faster(found: Summary) -> str:
    """If the network took no time, and how good the model is that says so."""
    if found.replayed is None:
        return ""
    was, without = found.replayed.as_it_was_s, found.replayed.without_wire_s
    less = found.makespan_s * (1 - without / was) if was else 0.0
    return (
        f" Had the network taken no time: {found.makespan_s - less:.2f} s, at most {less:.2f} s less"
        f" (replayed on the same workers: {without:.2f} s, with the network as it was {was:.2f} s,"
        f" {was / found.makespan_s - 1:+.1%})."
    )


def difference(found: Difference) -> str:
    """Two accounts: what the second has more, the most first, then what it has less."""
    least = TOLD * max(abs(found.makespan_s), found.old.makespan_s * TOLD)
    ranked = [each for each in found.ranked() if abs(each[2]) > least and each[0] != IDLE]
    more, less = [e for e in ranked if e[2] > 0][:MOST], [e for e in ranked if e[2] < 0][:-3:-1]
    parts = [_culprit(name, place, seconds, "+") for name, place, seconds in (*more, *less)]
    before, after = found.old.makespan_s, found.new.makespan_s
    said = f"{found.makespan_s:+.2f} s ({before:.2f} to {after:.2f} s)"
    return f"{said}: on the critical path {', '.join(parts)}." if parts else f"{said}."


def _culprit(name: str, place: str, seconds: float, sign: str = "") -> str:
    where = f" ({place})" if place and place not in (name, "client", "scheduler") else ""
    return f"{seconds:{sign}.2f} s {CULPRITS[name]}{where}"


def rows(found: Summary) -> Iterator[Row]:
    """An account by cause; its last row is the sum, which is the makespan."""
    for cause, words in WORDS.items():
        seconds, path = found.by_cause.get(cause, 0.0), found.path_by_cause.get(cause, 0.0)
        if seconds or path:
            share = f"{seconds / found.makespan_s:.1%}"
            yield words, f"{seconds:.3f}", share, f"{path:.3f}", _where(found.account, cause)
    total, path = sum(found.account.values()), sum(found.path.values())
    yield "together", f"{total:.3f}", f"{total / found.makespan_s:.1%}", f"{path:.3f}", ""


def difference_rows(found: Difference) -> Iterator[Row]:
    """Two accounts by cause; the last row is the sum, which is the difference of the makespans."""
    old, new = found.old, found.new
    for cause, words in WORDS.items():
        before, after = old.by_cause.get(cause, 0.0), new.by_cause.get(cause, 0.0)
        path = new.path_by_cause.get(cause, 0.0) - old.path_by_cause.get(cause, 0.0)
        if before or after or path:
            seconds = (f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}", f"{path:+.3f}")
            yield (words, *seconds, _where(found.account, cause))
    sums = (f"{sum(one.account.values()):.3f}" for one in (old, new))
    total, path = sum(found.account.values()), sum(found.path.values())
    yield "together", *sums, f"{total:+.3f}", f"{path:+.3f}", ""


def starved(waiting_s: Mapping[str, float], makespan_s: float) -> str:
    """Who waited for a CPU, if that was long: a machine that is too small or busy looks like worker lag."""
    most = sorted(waiting_s.items(), key=lambda item: -item[1])
    told = [f"{node} {seconds:.2f} s" for node, seconds in most if seconds > STARVED * makespan_s]
    return f"Kept waiting for a CPU, per run: {', '.join(told)}." if told else ""


def clock_rows(found: Mapping[str, Clock]) -> Iterator[Row]:
    """Each clock: its offset to the reference, the honest interval, its skew."""
    for node, clock in found.items():
        between = f"{1e3 * clock.low_s:.2f} to {1e3 * clock.high_s:.2f}"
        said = "" if clock.linear else f"not linear, by {-1e3 * clock.margin_s:.2f} ms"
        yield node, f"{1e3 * clock.offset_s:.3f}", between, f"{1e6 * clock.skew:.0f}", str(clock.pairs), said


def belief(found: Sequence[Belief]) -> str:
    """One sentence: the pair that Dask's one number is farthest above."""
    known = [(one.planned / one.found, one) for one in found if one.found]
    if not known:
        return ""
    times, worst = max(known, key=lambda each: each[0])
    beside = f"{times:.1f} times less." if times > 1 else "no pair got less than that."
    return (
        f"Dask plans with {_mb(worst.planned)} MB/s between all pairs; {worst.receiver} got"
        f" {_mb(worst.found)} from {worst.sender}: {beside}"
    )


def belief_rows(found: Sequence[Belief]) -> Iterator[Row]:
    """A row a pair, in MB/s."""
    for one in found:
        yield (one.receiver, one.sender, *map(_mb, (one.planned, one.table, one.fetched, one.probed)))


def _mb(bytes_per_s: float | None) -> str:
    return "" if bytes_per_s is None else f"{bytes_per_s / 1e6:.1f}"


def stage_rows(found: Sequence[Run]) -> Iterator[Row]:
    """A task's way in stages."""
    for words, middle, low, high, link in stages(found):
        yield words, f"{middle:.3f}", f"{low:.3f}", f"{high:.3f}", "yes" if link else ""


def graph_rows(found: Way | None) -> Iterator[Row]:
    """A graph's way from the client to the scheduler's states."""
    for stage, seconds in found.seconds.items() if found else ():
        words, link = GRAPH_STAGES[stage]
        each = f"{1e6 * seconds / found.tasks:.1f}" if found and found.tasks else ""
        yield words, f"{1e3 * seconds:.2f}", each, "yes" if link else ""


def graph(found: Way | None) -> str:
    """Its size."""
    if not found or not found.tasks:
        return ""
    size = found.nbytes / found.tasks
    return f"Graphs of a run: {found.tasks:.0f} tasks, {found.nbytes / 1e6:.2f} MB, {size:.0f} bytes a task."


def growth_rows(found: Mapping[str, Way]) -> Iterator[Row]:
    """Microseconds a task of each stage, a column a cell; and with which power of the tasks it grows."""
    powers = growth(list(found.values()))
    for stage, (words, _) in GRAPH_STAGES.items():
        each = (f"{1e6 * way.seconds[stage] / max(1, way.tasks):.1f}" for way in found.values())
        yield (words, *each, f"{powers[stage]:.2f}" if stage in powers else "")


def growth_head(found: Mapping[str, Way]) -> Row:
    """Its cells, by their number of tasks."""
    return ("a graph, µs a task", *(f"{name}: {way.tasks:.0f}" for name, way in found.items()), "power")


def square(found: Sequence[Way]) -> str:
    """What grows with the square of the number of tasks."""
    named = [GRAPH_STAGES[stage][0] for stage in squares(found)]
    return f"Grows with the square of the number of tasks, or nearly: {'; '.join(named)}." if named else ""


GRAPH_HEAD: Row = ("a graph's way", "ms", "µs a task", "moves with the link")
STAGE_HEAD: Row = ("a task's way, ms", "median", "10 %", "90 %", "moves with the link")
BELIEF_HEAD: Row = ("MB/s to", "from", "Dask plans with", "Dask's table", "Dask's fetches", "iperf3")
CLOCK_HEAD: Row = ("clock", "ahead, ms", "surely between", "skew, ppm", "bounds", "")


def _where(cells: Mapping[Cell, float], cause: str) -> str:
    """The places that most of a cause's seconds are at."""
    found = [(host, seconds) for host, seconds in hosts(cells, cause) if host not in ("client", "")]
    most = max((abs(seconds) for _, seconds in found), default=0.0)
    return ", ".join(f"{host} {seconds:.2f}" for host, seconds in found[:3] if abs(seconds) > most / 10)
