"""What the capture itself lacks."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.traffic import GRAPHS
from daskwire.analysis.problems.finding import Finding, Kind, counted, percent
from daskwire.analysis.tables.completeness import completeness
from daskwire.analysis.tables.summary import likely_tunnels, not_decoded, snaplen
from daskwire.decoder.file import tcpdump
from daskwire.decoder.net.packets.layers import FRAGMENTS

# Packets that could not be decoded.

SKIPPED_PACKET_SHARE = 0.01


def find_undecoded_capture(evidence: Evidence) -> Iterator[Finding]:
    """Yield why packets were not decoded. If Dask was found all the same, the capture is only incomplete."""
    capture = evidence.capture
    reasons = {**likely_tunnels(capture), **not_decoded(capture)}
    if fragments := capture.skipped[FRAGMENTS]:
        reasons[FRAGMENTS] = fragments
    if not reasons:
        return
    number = sum(reasons.values())
    parts = ", ".join(f"{reason} {packets:,}" for reason, packets in reasons.items())
    what = f"{number:,} of {capture.packets:,} packets: {parts}"
    if not capture.conversations:
        yield Finding(UNDECODED_CAPTURE, what, number=number)
    else:
        is_note = number < SKIPPED_PACKET_SHARE * capture.packets
        yield Finding(INCOMPLETE_CAPTURE, f"not decoded: {what}", number=number, is_note=is_note)


UNDECODED_CAPTURE = Kind(
    name="undecoded capture",
    meaning="Nothing of Dask could be decoded.",
    threshold=(
        "no Dask message, although packets may carry Dask: tunnels, unsupported link types, IP fragments"
    ),
    advice=(
        "Tunnels: record inside, or name the tunnel's port with --tunnel. Link types: record an Ethernet"
        " interface, or -i any. Fragments: lower the MTU of the tunnel's inner interface."
    ),
    is_first=True,
    is_about_capture=True,
    detect=find_undecoded_capture,
)


# A capture point that part of the cluster's traffic does not pass.

MIN_UNSEEN_TRANSFERS = 3  # workers report as many, and the capture contains none
TRANSFER_OPS = {"get_data", "shuffle_receive"}
CLIENT_OPS = GRAPHS | {"key-in-memory"}


def find_wrong_capture_point(evidence: Evidence) -> Iterator[Finding]:
    """Yield what Dask's messages prove to have happened, but the capture does not contain."""
    what = _only_one_direction(evidence)
    if not what and not evidence.is_cut:  # else what was not seen may be in the missing content
        what = _unseen_workers(evidence) or _unseen_transfers(evidence)
    if what:
        yield Finding(WRONG_CAPTURE_POINT, what, certainty=0.9)


def _only_one_direction(evidence: Evidence) -> str:
    single, _ = evidence.one_way
    return f"{len(single)} connections have packets in one direction only" if evidence.is_one_way else ""


def _unseen_workers(evidence: Evidence) -> str:
    """Compare the workers that Dask's messages name with those that talk to the scheduler in the capture."""
    capture = evidence.capture
    ops = set(capture.messages.op_name)
    if ops & CLIENT_OPS and not ops & {"compute-task", "task-finished", "task-erred"}:
        return "clients compute, but no message between a scheduler and its workers is in the capture"
    peers = {
        capture.nodes.processes.get(capture.senders[flow], capture.senders[flow])
        for flow in evidence.flows
        if capture.senders[flow ^ 1] in capture.nodes.schedulers
    }
    workers = {e for e in capture.nodes.listening if e not in capture.nodes.schedulers}
    names = {capture.nodes.listening[e] for e in workers}
    present = {capture.nodes.listening[e] for e in workers & peers}
    if not capture.nodes.schedulers or not names - present or not present:
        return ""
    return (
        f"{len(names - present)} of {len(names)} workers have no connection with the scheduler in the capture"
    )


def _unseen_transfers(evidence: Evidence) -> str:
    """Compare the transfers that workers report with those in the capture."""
    tasks, table = evidence.capture.table("tasks"), evidence.transfers
    reported = sum(1 for transfer_ms in tasks["transfer_ms"] if transfer_ms)
    schedulers = set(evidence.capture.scheduler_names.values())
    columns = zip(table["source"], table["destination"], table["kind"], strict=True)
    captured = sum(kind in TRANSFER_OPS and not schedulers & set(ends) for *ends, kind in columns)
    if reported < MIN_UNSEEN_TRANSFERS or captured:
        return ""
    return f"workers report {reported} tasks with transfers from other workers, of which none was captured"


WRONG_CAPTURE_POINT = Kind(
    name="wrong capture point",
    meaning="The capture does not contain traffic that Dask's own messages prove.",
    threshold=(
        "workers report transfers from other workers, and none is in the capture; or some workers have no"
        " connection with the scheduler in it; or all connections have one direction only"
    ),
    advice="Record on every worker, on a mirror port of the switch or on the bridge, and give all files.",
    effects=frozenset({"incomplete capture", "asymmetric path", "standstill"}),
    is_first=True,
    is_about_capture=True,
    detect=find_wrong_capture_point,
)


# Packets, or parts of them, that the capture lost.

LOST_SHARE = 0.01


def find_incomplete_capture(evidence: Evidence) -> Iterator[Finding]:
    yield from _missing_bytes(evidence)
    yield from _truncated_packets(evidence)
    yield from _early_connections(evidence)
    yield from _damaged_files(evidence)


def _missing_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Yield what the capture lost: its receiver acknowledged it."""
    flows = evidence.capture.table("flows")
    stream, lost = sum(flows["stream_bytes"]), sum(flows["lost_bytes"])
    if lost:
        missing = completeness(evidence.capture)["messages_missing"]
        share = percent(lost / stream)
        what = f"{lost:,} of {stream:,} stream bytes ({share}) were acknowledged but not captured"
        what += f"; about {missing:,} messages are missing" if missing else ""
        yield Finding(INCOMPLETE_CAPTURE, what, number=lost, is_note=lost < LOST_SHARE * stream)


def _truncated_packets(evidence: Evidence) -> Iterator[Finding]:
    if cut := snaplen(evidence.capture):
        is_note = not evidence.is_cut and not cut["unframed_bytes"]
        what = (
            f"{cut['packets']:,} packets were truncated to {cut['kept_bytes']:,} bytes: {cut['messages']:,}"
            f" messages have no content, {cut['unframed_bytes']:,} bytes no message"
        )
        yield Finding(INCOMPLETE_CAPTURE, what, number=cut["packets"], is_note=is_note)


def _early_connections(evidence: Evidence) -> Iterator[Finding]:
    """Yield connections that began before the capture."""
    figures = completeness(evidence.capture)
    for name, what in (
        (
            "began_before",
            f"of {len(evidence.capture.conversations):,} Dask connections began before the capture",
        ),
        ("unrecognised", "connections began before the capture and were not recognised"),
    ):
        if number := figures[name]:
            yield Finding(INCOMPLETE_CAPTURE, f"{number:,} {what}", number=number, is_note=True)


def _damaged_files(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.capture.files:
        if file.progress.problem:
            yield Finding(
                INCOMPLETE_CAPTURE,
                f"{file.path}: {file.progress.problem}",
                is_note=not file.progress.damaged,
            )
        if file.progress.dropped:
            what = f"{file.path}: the capturing program lost {file.progress.dropped:,} packets"
            few = file.progress.dropped < LOST_SHARE * max(evidence.capture.packets, 1)
            number = file.progress.dropped
            yield Finding(INCOMPLETE_CAPTURE, what, number=number, is_note=few)


INCOMPLETE_CAPTURE = Kind(
    name="incomplete capture",
    meaning="Packets are missing from the capture although the network delivered them.",
    threshold=(
        "1 % of the stream bytes were acknowledged but not captured; or truncated packets cost the content"
        " of 2 % of the messages; or 1 % of the packets were not decoded"
    ),
    advice=(
        f"Record with the snaplen and the buffer of '{tcpdump.RECORD}', to a fast disk; with -s 0 if that"
        " still truncates messages."
    ),
    is_first=True,
    effects=frozenset({"standstill", "unregistered worker"}),
    is_about_capture=True,
    detect=find_incomplete_capture,
)


# Files whose packets are not in order of time.


def find_disordered_file(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.capture.files:
        if number := file.progress.disordered:
            what = f"{file.path}: {number:,} of its packets were out of order; all are sorted by time"
            yield Finding(DISORDERED_FILE, what, number=number, is_note=True)


DISORDERED_FILE = Kind(
    name="disordered file",
    meaning="Packets in the file are not in order of time.",
    threshold="always a note",
    advice="Nothing: they are sorted.",
    is_about_capture=True,
    detect=find_disordered_file,
)


# Connections of which one direction takes a path that was not captured.


def find_asymmetric_path(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs with connections of which one direction is missing, if most others are complete."""
    single, complete = evidence.one_way
    if evidence.is_one_way:
        return  # the capture point is wrong
    for (cluster, source, destination), flows in evidence.by_pair(single).items():
        missing = int(evidence.capture.extents.missing[[flow ^ 1 for flow in flows]].sum())
        what = (
            f"{counted(len(flows), 'connection')} without packets from {destination} to {source} in the"
            f" capture, though {missing:,} bytes of them were acknowledged; {complete} other connections have"
            " both directions"
        )
        pair = cluster, destination, source
        yield Finding(ASYMMETRIC_PATH, what, pair, evidence.span(flows), 0.0, 0.9, len(flows), tuple(flows))


ASYMMETRIC_PATH = Kind(
    name="asymmetric path",
    meaning="Packets of a connection take another path than their answers.",
    threshold=(
        "one direction of some connections is not in the capture, though it was acknowledged, and most"
        " connections have both"
    ),
    advice="Compare the routes of both hosts (ip route get), and look for two interfaces in one subnet.",
    filter="tcp.analysis.ack_lost_segment",
    effects=frozenset({"incomplete capture", "unanswered connects", "standstill", "unregistered worker"}),
    detect=find_asymmetric_path,
)
