"""What is wrong here? One table of everything in a capture that people look for when a cluster is slow.

Each finder looks at other tables and tells what is beyond a bound; the bounds stand here and in README.md.
An empty table is an answer: nothing of this was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from daskwire.capture import Capture
from daskwire.dask.content import Kind
from daskwire.net.health import Connect, connects
from daskwire.net.skipped import FRAGMENTS
from daskwire.schema import Table, add_row, empty
from daskwire.tables.completeness import ENCRYPTED, completeness
from daskwire.tables.summary import likely_tunnels, not_decoded, snaplen

LATE = 2.0  # times the interval that the scheduler asked for, from which a heartbeat is late
SLOW_MS = 1000.0  # that long a connect, a handshake or the answer to a heartbeat is slow
RESENT = 0.01  # share of the packets from one node to another from which retransmissions are worth a line,
FEWEST = 5  # and how many it must be at least
SLOWEST = 10  # transfers shown
Row = tuple[str, int | None, str, str, int, float | None, str, str]  # in the order of the table's columns
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
            yield "file", None, "", "", 1, None, f"{file.path}: {said}", ""


def _lost(capture: Capture) -> Rows:
    columns = ("lost_bytes", "stream_bytes", "missing_messages")
    for (cluster, source, destination), sums in _by_pair(capture, *columns):
        lost, stream = sums["lost_bytes"], sums["stream_bytes"]
        what = f"{lost / max(stream, 1):.2%} of {stream:,} bytes: acknowledged, but not in the capture"
        if messages := sums["missing_messages"]:
            what += f"; about {messages:,} messages are missing altogether"
        yield "lost by the capture", None, source, destination, lost, None, what, cluster


def _began_before(capture: Capture) -> Rows:
    whole = completeness(capture)
    for name, what in (
        ("began_before", f"of {len(capture.conversations):,} Dask connections; their beginning is missing"),
        ("unrecognised", "connections that were not recognised: TLS, WebSocket, or no Dask at all"),
    ):
        if number := whole[name]:
            yield "began before the capture", None, "", "", number, None, what, ""


def _snaplen(capture: Capture) -> Rows:
    if cut := snaplen(capture):
        what = (
            f"packets cut after {cut['kept_bytes']:,} bytes: {cut['messages']:,} messages lost what they "
            f"say, {cut['unframed_bytes']:,} bytes have no message; tcpdump -s 0 keeps all, -s 1024 nearly"
        )
        yield "snaplen too small", None, "", "", cut["packets"], None, what, ""


def _covered(capture: Capture) -> Rows:
    for name, packets in likely_tunnels(capture).items():
        yield "likely tunnel", None, "", "", packets, None, f"packets that were not looked into: {name}", ""
    closed = Counter(capture.other_protocols.values())
    for protocol in sorted(ENCRYPTED & set(closed)):
        yield "covered", None, "", "", closed[protocol], None, f"connections that speak {protocol}", ""
    if fragments := capture.skipped[FRAGMENTS]:
        yield "fragments", None, "", "", fragments, None, "IP fragments, which are not put together", ""
    for reason, number in not_decoded(capture).items():
        yield "not looked into", None, "", "", number, None, f"packets: {reason}", ""


def _connects(capture: Capture) -> Rows:
    found: defaultdict[tuple[str, ...], list[Connect]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, len(capture.sources)):
        kind = _kind_of_connect(connect)
        if kind:
            _, _, address, port = capture.connections.endpoints(connect.flow)
            source, destination = _ends(capture, connect.flow)
            cluster = str(capture.clusters[connect.flow])
            found[kind, source, destination, f"to {address} port {port}", cluster].append(connect)
    for (kind, source, destination, where, cluster), those in sorted(found.items()):
        worst = max((c.ms for c in those if c.ms is not None), default=None)
        attempts = sum(c.attempts for c in those)
        what = f"{where}, with {attempts} SYNs"
        yield kind, those[0].time_ns, source, destination, len(those), worst, what, cluster


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
    slow: defaultdict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    for connection, times in first.items():
        begin, end = min(times.values()), max(times.values())
        if len(times) == 2 and (end - begin) / 1e6 > SLOW_MS:
            late = max(times, key=lambda direction: times[direction])
            flow = 2 * connection + late
            slow[(str(capture.clusters[flow]), *_ends(capture, flow))].append(((end - begin) / 1e6, begin))
    for (cluster, source, destination), those in sorted(slow.items()):
        what = "Dask handshakes that the source sent so long after the destination"
        worst, time_ns = max(those)
        yield "slow handshake", time_ns, source, destination, len(those), worst, what, cluster


def _heartbeats(capture: Capture) -> Rows:
    late: defaultdict[tuple[str, str], list[tuple[float, int, float]]] = defaultdict(list)
    slow: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    asked: dict[tuple[str, str], float] = {}
    beats, schedulers = capture.table("heartbeats"), capture.scheduler_names
    names = ("cluster", "worker", "time_ns", "interval_ms", "announced_ms", "answer_ms")
    columns = (beats[name] for name in names)
    for cluster, name, time_ns, interval, announced, answer in zip(*columns, strict=True):
        worker = cluster, name
        if interval is not None and worker in asked and interval > LATE * asked[worker]:
            late[worker].append((interval, time_ns, asked[worker]))
        if answer is not None and answer > SLOW_MS:
            slow[worker].append((answer, time_ns))
        if announced:
            asked[worker] = announced
    for (cluster, name), those in sorted(late.items()):
        worst, time_ns, every = max(those)
        what = f"heartbeats after more than twice the {every:g} ms that the scheduler asked for"
        yield "late heartbeat", time_ns, name, schedulers[cluster], len(those), worst, what, cluster
    for (cluster, name), answers in sorted(slow.items()):
        worst, time_ns = max(answers)
        what = "heartbeats that the scheduler answered so late"
        yield "slow answer", time_ns, schedulers[cluster], name, len(answers), worst, what, cluster


def _windows(capture: Capture) -> Rows:
    for (cluster, source, destination), sums in _by_pair(capture, "zero_windows"):
        what = "times the source could not take more: its process did not read"
        yield "zero window", None, source, destination, sums["zero_windows"], None, what, cluster


def _losses(capture: Capture) -> Rows:
    columns = ("retransmitted", "spurious", "packets", "copies")
    for (cluster, source, destination), sums in _by_pair(capture, *columns):
        packets = sums["packets"] - sums["copies"]
        if sums["retransmitted"] >= max(FEWEST, RESENT * packets):
            what = f"of {packets:,} packets sent again, {sums['spurious']:,} of these needlessly"
            yield "retransmissions", None, source, destination, sums["retransmitted"], None, what, cluster


def _resets(capture: Capture) -> Rows:
    for (cluster, source, destination), sums in _by_pair(capture, "resets", dask=True):
        what = "connections that carried Dask broken off with RST"
        yield "reset", None, source, destination, sums["resets"], None, what, cluster


def _tasks(capture: Capture) -> Rows:
    tasks = capture.table("tasks")
    rows = zip(tasks["cluster"], tasks["worker"], tasks["outcome"], strict=True)
    erred = Counter((cluster, worker) for cluster, worker, outcome in rows if outcome == "erred")
    for (cluster, worker), number in sorted(erred.items()):
        scheduler, what = capture.scheduler_names.get(cluster, ""), "tasks that ended with an exception"
        yield "erred tasks", None, worker, scheduler, number, None, what, cluster


def _busy(capture: Capture) -> Rows:
    moved = capture.table("transfers")
    rows = zip(*(moved[name] for name in ("cluster", "source", "destination", "status")), strict=True)
    busy = Counter((cluster, source, to) for cluster, source, to, status in rows if status == "busy")
    for (cluster, source, destination), number in sorted(busy.items()):
        what = "requests for data that the source put off: too many at once"
        yield "busy", None, source, destination, number, None, what, cluster


FINDERS: tuple[Callable[[Capture], Rows], ...] = (
    _files, _lost, _began_before, _snaplen, _covered, _connects, _handshakes, _heartbeats,
    _windows, _losses, _resets, _tasks, _busy,
)  # fmt: skip


def _ends(capture: Capture, flow: int) -> tuple[str, str]:
    return str(capture.sources[flow]), str(capture.sources[flow ^ 1])


def _by_pair(
    capture: Capture, first: str, *more: str, dask: bool = False
) -> Iterator[tuple[tuple[str, str, str], Counter[str]]]:
    """Sums of columns of the flows by cluster and pair of nodes, where the sum of the first is not 0."""
    flows = capture.table("flows")
    pairs: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    ends = zip(flows["cluster"], flows["source"], flows["destination"], strict=True)
    for row, pair in enumerate(ends):
        if flows["generation"][row] or not dask:
            pairs[pair].update({name: flows[name][row] for name in (first, *more)})
    yield from ((pair, sums) for pair, sums in sorted(pairs.items()) if sums[first])
