"""What is wrong here? One table of everything in a capture that people look for when a cluster is slow.

Each finder looks at other tables and tells what is beyond a bound; the bounds stand here and in README.md.
An empty table is an answer: nothing of this was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lab.wire.capture import Capture
from lab.wire.dask.content import Kind
from lab.wire.net.health import Connect, connects
from lab.wire.net.skipped import FRAGMENTS
from lab.wire.schema import Table, add_row, empty
from lab.wire.tables.summary import likely_tunnels, not_looked_into, snaplen

LATE = 2.0  # times the interval that the scheduler asked for, from which a heartbeat is late
SLOW_MS = 1000.0  # that long a connect, a handshake or the answer to a heartbeat is slow
RESENT = 0.01  # share of the packets from one node to another from which retransmissions are worth a line,
FEWEST = 5  # and how many it must be at least
SLOWEST = 10  # transfers shown
Row = tuple[str, int | None, str, str, int, float | None, str]  # in the order of the table's columns
Rows = Iterator[Row]


def problems(capture: Capture) -> Table:
    """One row per problem and pair of nodes, or worker, or file."""
    table = empty("problems")
    for find in FINDERS:
        for row in find(capture):
            add_row(table, *row)
    return table


def slowest(capture: Capture) -> Table:
    """The transfers that were longest on the wire, longest first."""
    moved = capture.table("transfers")
    order = sorted(range(len(moved["wire_ms"])), key=lambda i: -moved["wire_ms"][i])[:SLOWEST]
    return {name: [column[i] for i in order] for name, column in moved.items()}


def _files(capture: Capture) -> Rows:
    for file in capture.files:
        for said in file.problems():
            yield "file", None, "", "", 1, None, f"{file.path}: {said}"


def _lost(capture: Capture) -> Rows:
    for (source, destination), sums in _by_pair(capture, "lost_bytes", "stream_bytes"):
        lost, stream = sums["lost_bytes"], sums["stream_bytes"]
        what = f"{lost / max(stream, 1):.2%} of {stream:,} bytes: acknowledged, but not in the capture"
        yield "lost by the capture", None, source, destination, lost, None, what


def _snaplen(capture: Capture) -> Rows:
    if cut := snaplen(capture):
        what = (
            f"packets cut after {cut['kept_bytes']:,} bytes: {cut['messages']:,} messages lost what they "
            f"say, {cut['unframed_bytes']:,} bytes have no message; tcpdump -s 0 keeps all, -s 1024 nearly"
        )
        yield "snaplen too small", None, "", "", cut["packets"], None, what


def _covered(capture: Capture) -> Rows:
    for name, packets in likely_tunnels(capture).items():
        yield "likely tunnel", None, "", "", packets, None, f"packets that were not looked into: {name}"
    closed = Counter(capture.other_protocols.values())
    for protocol in sorted({"tls", "ws"} & set(closed)):
        yield "covered", None, "", "", closed[protocol], None, f"connections that speak {protocol}"
    if fragments := capture.skipped[FRAGMENTS]:
        yield "fragments", None, "", "", fragments, None, "IP fragments, which are not put together"
    for reason, number in not_looked_into(capture).items():
        yield "not looked into", None, "", "", number, None, f"packets: {reason}"


def _connects(capture: Capture) -> Rows:
    found: defaultdict[tuple[str, str, str, str], list[Connect]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, len(capture.sources)):
        kind = _kind_of_connect(connect)
        if kind:
            _, _, address, port = capture.connections.endpoints(connect.flow)
            source, destination = _ends(capture, connect.flow)
            found[kind, source, destination, f"to {address} port {port}"].append(connect)
    for (kind, source, destination, where), those in sorted(found.items()):
        worst = max((c.ms for c in those if c.ms is not None), default=None)
        attempts = sum(c.attempts for c in those)
        what = f"{where}, with {attempts} SYNs"
        yield kind, those[0].time_ns, source, destination, len(those), worst, what


def _kind_of_connect(connect: Connect) -> str:
    if connect.refused:
        return "refused connect"
    if not connect.answered:
        return "unanswered connect"
    slow = connect.attempts > 1 or (connect.ms is not None and connect.ms > SLOW_MS)
    return "slow connect" if slow else ""


def _handshakes(capture: Capture) -> Rows:
    """Dask's own handshake, which both sides write at once: a slow one had to wait for an event loop."""
    found = capture.messages
    first: dict[int, dict[int, int]] = defaultdict(dict)
    for index in (found.kind == Kind.HANDSHAKE).nonzero()[0].tolist():
        first[int(found.flow[index]) // 2].setdefault(int(found.flow[index]) % 2, int(found.time_ns[index]))
    slow: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for connection, times in first.items():
        begin, end = min(times.values()), max(times.values())
        if len(times) == 2 and (end - begin) / 1e6 > SLOW_MS:
            late = max(times, key=lambda direction: times[direction])
            slow[_ends(capture, 2 * connection + late)].append(((end - begin) / 1e6, begin))
    for (source, destination), those in sorted(slow.items()):
        what = "Dask handshakes that the source sent so long after the destination"
        yield "slow handshake", max(those)[1], source, destination, len(those), max(those)[0], what


def _heartbeats(capture: Capture) -> Rows:
    late: defaultdict[str, list[tuple[float, int, float]]] = defaultdict(list)
    slow: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    asked: dict[str, float] = {}
    beats = capture.table("heartbeats")
    columns = (beats[name] for name in ("worker", "time_ns", "interval_ms", "announced_ms", "answer_ms"))
    for worker, time_ns, interval, announced, answer in zip(*columns, strict=True):
        if interval is not None and worker in asked and interval > LATE * asked[worker]:
            late[worker].append((interval, time_ns, asked[worker]))
        if answer is not None and answer > SLOW_MS:
            slow[worker].append((answer, time_ns))
        if announced:
            asked[worker] = announced
    for worker, those in sorted(late.items()):
        worst, time_ns, every = max(those)
        what = f"heartbeats after more than twice the {every:g} ms that the scheduler asked for"
        yield "late heartbeat", time_ns, worker, "scheduler", len(those), worst, what
    for worker, answers in sorted(slow.items()):
        what = "heartbeats that the scheduler answered so late"
        yield "slow answer", max(answers)[1], "scheduler", worker, len(answers), max(answers)[0], what


def _windows(capture: Capture) -> Rows:
    for (source, destination), sums in _by_pair(capture, "zero_windows"):
        what = "times the source could not take more: its process did not read"
        yield "zero window", None, source, destination, sums["zero_windows"], None, what


def _losses(capture: Capture) -> Rows:
    for (source, destination), sums in _by_pair(capture, "retransmitted", "spurious", "packets", "copies"):
        packets = sums["packets"] - sums["copies"]
        if sums["retransmitted"] >= max(FEWEST, RESENT * packets):
            what = f"of {packets:,} packets sent again, {sums['spurious']:,} of these needlessly"
            yield "retransmissions", None, source, destination, sums["retransmitted"], None, what


def _resets(capture: Capture) -> Rows:
    for (source, destination), sums in _by_pair(capture, "resets", dask=True):
        what = "connections that carried Dask broken off with RST"
        yield "reset", None, source, destination, sums["resets"], None, what


def _tasks(capture: Capture) -> Rows:
    tasks = capture.table("tasks")
    for worker, number in sorted(Counter(_where(tasks, "worker", "outcome", "erred")).items()):
        yield "erred tasks", None, worker, "scheduler", number, None, "tasks that ended with an exception"


def _busy(capture: Capture) -> Rows:
    moved = capture.table("transfers")
    pairs = zip(moved["source"], moved["destination"], moved["status"], strict=True)
    busy = Counter((source, destination) for source, destination, status in pairs if status == "busy")
    for (source, destination), number in sorted(busy.items()):
        what = "requests for data that the source put off: too many at once"
        yield "busy", None, source, destination, number, None, what


FINDERS: tuple[Callable[[Capture], Rows], ...] = (
    _files, _lost, _snaplen, _covered, _connects, _handshakes, _heartbeats, _windows, _losses, _resets,
    _tasks, _busy,
)  # fmt: skip


def _ends(capture: Capture, flow: int) -> tuple[str, str]:
    return str(capture.sources[flow]), str(capture.sources[flow ^ 1])


def _where(table: Table, column: str, other: str, value: Any) -> Iterable[Any]:
    return (a for a, b in zip(table[column], table[other], strict=True) if b == value)


def _by_pair(
    capture: Capture, first: str, *more: str, dask: bool = False
) -> Iterator[tuple[tuple[str, str], Counter[str]]]:
    """Sums of columns of the flows by pair of nodes, where the sum of the first is not 0."""
    flows = capture.table("flows")
    pairs: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row, (source, destination) in enumerate(zip(flows["source"], flows["destination"], strict=True)):
        if flows["generation"][row] or not dask:
            pairs[source, destination].update({name: flows[name][row] for name in (first, *more)})
    yield from ((pair, sums) for pair, sums in sorted(pairs.items()) if sums[first])
