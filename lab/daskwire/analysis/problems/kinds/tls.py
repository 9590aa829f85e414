"""TLS: handshakes that fail, and connections that cannot be decrypted for want of keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskwire.analysis.problems.evidence.connects import Target
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import FAILURES, Finding, Kind, counted, is_cheap
from daskwire.analysis.tables.completeness import ENCRYPTED
from daskwire.decoder.dask import carriers
from daskwire.decoder.dask.nodes import Endpoint
from daskwire.decoder.net.segments import ACK, SYN
from daskwire.decoder.net.tcp import Stream

# TLS connections that end in their handshake, and TLS that meets a process without TLS.

ALERT = 21
MAX_RECORDS_OF_A_DIRECTION = 32
CHANGE_CIPHER_SPEC = 20  # sent for the sake of old firewalls, without meaning
MAX_ALERT_BYTES = 24  # an encrypted record that is larger is no alert
FIRST_PORT = 1024  # services on lower ports are not Dask's
ALERTS = {
    0: "close notify", 40: "handshake failure", 42: "bad certificate", 43: "unsupported certificate",
    44: "certificate revoked", 45: "certificate expired", 46: "certificate unknown", 48: "unknown CA",
    49: "access denied", 50: "decode error", 51: "decrypt error", 70: "protocol version",
    71: "insufficient security", 80: "internal error", 86: "inappropriate fallback",
    109: "missing extension", 112: "unrecognized name", 116: "certificate required",
}  # fmt: skip


@dataclass(frozen=True)
class TlsRecord:
    """A TLS record: content type, size in bytes, when it was sent, and the number of a plain alert."""

    type: int
    size: int
    time_ns: int
    alert: int | None

    @property
    def may_be_alert(self) -> bool:
        return self.type == ALERT or (self.type == carriers.APPLICATION and self.size <= MAX_ALERT_BYTES)


@dataclass(frozen=True)
class Attempt:
    """A connection on which one side spoke TLS, or to a port where others did."""

    evidence: Evidence
    flow: int  # of the side that opened the connection

    @cached_property
    def client(self) -> list[TlsRecord]:
        """The records of the side that opened the connection, none if it does not speak TLS."""
        return _records(self.evidence.capture.stream(self.flow))

    @cached_property
    def server(self) -> list[TlsRecord]:
        return _records(self.evidence.capture.stream(self.flow ^ 1))

    def speaks_without_tls(self, flow: int) -> bool:
        """Return whether the first bytes of a side were captured and are not TLS."""
        stream = self.evidence.capture.stream(flow)
        has_head = stream is not None and stream.opened and stream.read(0, carriers.HEADER) is not None
        return has_head and not (self.client if flow == self.flow else self.server)

    @property
    def server_end(self) -> Endpoint:
        return self.evidence.capture.senders[self.flow ^ 1]

    @property
    def is_over(self) -> bool:
        """Whether the end of the connection was captured, and nothing before it is missing."""
        capture = self.evidence.capture
        missing = capture.extents.missing[[self.flow, self.flow ^ 1]]
        return bool(capture.lives.closed[self.flow >> 1] and not missing.any())

    def failure(self, is_tls_port: bool) -> str:
        """Say how the connection failed, nothing if it did not."""
        if self.speaks_without_tls(self.flow):
            is_silent = self.evidence.capture.extents.end[self.flow ^ 1] == 0
            is_refused = bool(self.server) or (is_tls_port and self.is_over and is_silent)
            return "the client speaks without TLS to a port that expects TLS" if is_refused else ""
        if self.client and self.speaks_without_tls(self.flow ^ 1):
            return "the client speaks TLS to a port that speaks without TLS"
        return self._broken_handshake() if self.is_over and self.client and self.server else ""

    def _broken_handshake(self) -> str:
        """Say which side ended a handshake; the first flight of each side is followed by more if it works."""
        if all(record.type == ALERT for record in self.server):
            return f"the server rejected the client's hello{_alert_name(self.server)}"
        reply = self.client[1:]
        if all(record.may_be_alert for record in reply):
            return f"the client rejected the server's certificate or hello{_alert_name(reply)}"
        later = [record for record in self.server if record.time_ns > reply[0].time_ns]
        if later and all(record.may_be_alert for record in later):
            return f"the server rejected the client's certificate{_alert_name(later)}"
        return ""


def find_tls_failures(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding per pair of nodes, port and reason."""
    segments = evidence.capture.segments
    opening = segments.flow[(segments.flags & (SYN | ACK) == SYN)].tolist()
    attempts = [
        Attempt(evidence, flow) for flow in dict.fromkeys(opening) if _port(evidence, flow) >= FIRST_PORT
    ]
    tls_ports = {attempt.server_end for attempt in attempts if attempt.client and attempt.server}
    groups: defaultdict[tuple[Target, str], list[Attempt]] = defaultdict(list)
    successes: defaultdict[Target, list[int]] = defaultdict(list)
    for attempt in attempts:
        target = _target(evidence, attempt.flow)
        if reason := attempt.failure(attempt.server_end in tls_ports):
            groups[target, reason].append(attempt)
        elif attempt.client and attempt.server:
            successes[target].append(evidence.first_ns(attempt.flow))
    for (target, reason), group in groups.items():
        flows = tuple(attempt.flow for attempt in group)
        when = evidence.span(flows)
        later = [time_ns for time_ns in successes[target] if time_ns > when[0]]
        when = when[0], min(later, default=when[1])
        what = f"{counted(len(group), 'connection')} to {target.address} port {target.port} failed: {reason}"
        cost_s = (when[1] - when[0]) / 1e9
        is_note = bool(later) and is_cheap(cost_s)
        yield Finding(TLS_FAILURES, what, target.pair, when, cost_s, 0.95, len(group), flows, is_note)


def _port(evidence: Evidence, flow: int) -> int:
    return evidence.capture.connections.endpoints(flow)[3]


def _target(evidence: Evidence, flow: int) -> Target:
    _, _, address, port = evidence.capture.connections.endpoints(flow)
    return Target(evidence.pairs[flow], address, port)


def _records(stream: Stream | None) -> list[TlsRecord]:
    """Return the first records of a stream; none if it does not begin with TLS."""
    records: list[TlsRecord] = []
    position = 0
    while stream is not None and stream.opened and len(records) < MAX_RECORDS_OF_A_DIRECTION:
        head = stream.read(position, carriers.HEADER)
        if head is None or head[0] not in range(20, 24) or head[1] != 3:
            break
        size = int.from_bytes(head[3:5], "big")
        body = stream.read(position + carriers.HEADER, size) if head[0] == ALERT and size == 2 else None
        time_ns = int(stream.time_ns[min(stream.piece_at(position), len(stream.time_ns) - 1)])
        if head[0] != CHANGE_CIPHER_SPEC:
            records.append(TlsRecord(head[0], size, time_ns, body[1] if body else None))
        position += carriers.HEADER + size
    is_tls = records and records[0].type in (ALERT, carriers.HANDSHAKE)
    return records if is_tls else []


def _alert_name(records: list[TlsRecord]) -> str:
    numbers = [record.alert for record in records if record.alert]
    return f" ({ALERTS.get(numbers[0], f'alert {numbers[0]}')})" if numbers else ""


TLS_FAILURES = Kind(
    name="TLS failures",
    meaning="TLS connections end in their handshake, or only one side speaks TLS.",
    threshold=(
        "a connection to a port from 1024 on ended with an alert in place of the rest of its handshake; or a"
        " ClientHello met a process without TLS, or Dask's handshake without TLS a port with TLS"
    ),
    advice=(
        "Give all processes the same scheme (tls:// or tcp://) and certificates of the same CA:"
        " distributed.comm.tls, Security(...), --tls-ca-file."
    ),
    filter="tls.alert_message || tls.handshake.type == 1 || tcp.flags.reset == 1",
    effects=FAILURES,
    is_first=True,
    detect=find_tls_failures,
)


# Encrypted connections whose keys the capture lacks.


def find_tls_without_keys(evidence: Evidence) -> Iterator[Finding]:
    capture = evidence.capture
    hidden = [c for c, protocol in capture.other_protocols.items() if protocol in ENCRYPTED]
    if not hidden:
        return
    flow_bytes = np.bincount(
        capture.segments.flow, capture.segments.length, minlength=2 * len(capture.connections)
    )
    size = int(sum(flow_bytes[2 * c] + flow_bytes[2 * c + 1] for c in hidden))
    decoded = int(capture.messages.size.sum())
    protocols = " and ".join(sorted({capture.other_protocols[c] for c in hidden}))
    number = counted(len(hidden), f"{protocols} connection")
    what = f"{number} with {size:,} bytes could not be decoded"
    flows = tuple(2 * c for c in hidden)
    yield Finding(TLS_WITHOUT_KEYS, what, number=len(hidden), flows=flows, is_note=size < decoded)


TLS_WITHOUT_KEYS = Kind(
    name="TLS without keys",
    meaning="Connections are encrypted: only sizes, times and TCP's own figures are known.",
    threshold="at least as many bytes are encrypted as are decoded",
    advice="Start the processes with SSLKEYLOGFILE and give the file with --key-log.",
    filter="tls",
    is_first=True,
    is_about_capture=True,
    detect=find_tls_without_keys,
)
