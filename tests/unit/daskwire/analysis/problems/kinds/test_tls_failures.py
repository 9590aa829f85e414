"""TLS that ends in the handshake, and TLS that meets a process without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Read, findings, only
from tests.unit.daskwire.build import ACK, FIN, HELLO, RST, Talk, g3


def record(kind: int, size: int = 2, body: bytes = b"") -> bytes:
    body = body or bytes(size)
    return bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body


CLIENT_HELLO, UNKNOWN_CA = record(22, 512), record(21, body=b"\x02\x30")
FLIGHT = record(22, 122) + record(20, 1) + record(23, 23) + record(23, 1481)
FINISHED, TICKET, DATA, SEALED_ALERT = record(20, 1) + record(23, 53), *map(record, (23,) * 3, (938, 100, 19))


def talk(port: int = 40000) -> Talk:
    return Talk(client=("10.0.0.2", port), isn=(port, 2 * port)).open()


def healthy(port: int = 40000) -> Talk:
    one = talk(port).say(0, CLIENT_HELLO).say(1, FLIGHT).say(0, FINISHED).say(1, TICKET)
    one.say(0, DATA).say(1, DATA).say(0, SEALED_ALERT).say(1, SEALED_ALERT).add(0, RST)
    return one


def other_ca() -> Talk:
    return talk().say(0, CLIENT_HELLO).say(1, FLIGHT).say(0, UNKNOWN_CA)


def other_ca_after_keys() -> Talk:
    return talk().say(0, CLIENT_HELLO).say(1, FLIGHT).say(0, record(20, 1) + SEALED_ALERT)


def no_client_certificate() -> Talk:
    return talk().say(0, CLIENT_HELLO).say(1, FLIGHT).say(0, FINISHED).say(0, DATA).say(1, SEALED_ALERT)


def old_version() -> Talk:
    return talk().say(0, CLIENT_HELLO).say(1, record(21, body=b"\x02\x46"))


def hello_to_plain_port() -> Talk:
    return talk().say(1, g3(HELLO)).say(0, CLIENT_HELLO)


def plain_to_tls_port() -> Talk:
    return talk().say(0, g3(HELLO)).say(1, record(21, body=b"\x02\x46"))


@pytest.mark.parametrize(("build", "reason"), [
    (other_ca, "the client rejected the server's certificate or hello (unknown CA)"),
    (other_ca_after_keys, "the client rejected the server's certificate or hello"),
    (no_client_certificate, "the server rejected the client's certificate"),
    (old_version, "the server rejected the client's hello (protocol version)"),
    (hello_to_plain_port, "the client speaks TLS to a port that speaks without TLS"),
    (plain_to_tls_port, "the client speaks without TLS to a port that expects TLS"),
])  # fmt: skip
def test_connection_that_fails(read: Read, build: Callable[[], Talk], reason: str) -> None:
    one = build()
    one.add(0, FIN | ACK)
    row = only(read(one.packets), "TLS failures")
    assert row["what"] == f"1 connection to 10.0.0.1 port 8786 failed: {reason}"


def test_plain_connection_that_a_tls_port_closes_without_a_word(read: Read) -> None:
    one = talk(40001).say(0, g3(HELLO))
    one.add(1, RST | ACK)
    capture = read(sorted([*healthy().packets, *one.packets], key=lambda packet: packet[0]))
    assert only(capture, "TLS failures")["what"].endswith("to a port that expects TLS")


def test_failure_costs_the_time_until_the_next_success(read: Read) -> None:
    failed, later = other_ca(), healthy(40001)
    failed.add(0, FIN | ACK)
    packets = [(time_ns + 5 * SECOND_NS, data, size) for time_ns, data, size in later.packets]
    row = only(read([*failed.packets, *packets]), "TLS failures")
    assert row["cost_s"] == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("build", [healthy, lambda: talk().say(0, CLIENT_HELLO).say(1, FLIGHT)])
def test_success_and_open_handshake_are_no_failures(read: Read, build: Callable[[], Talk]) -> None:
    assert "TLS failures" not in [row["problem"] for row in findings(read(build().packets))]


def test_other_services_are_not_judged(read: Read) -> None:
    one = Talk(server=("10.0.0.1", 443)).open().say(0, CLIENT_HELLO).say(1, FLIGHT).say(0, UNKNOWN_CA)
    one.add(0, FIN | ACK)
    assert "TLS failures" not in read(one.packets).table("problems")["problem"]
