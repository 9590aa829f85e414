"""Connections that are accepted and never answered."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, FIN, HELLO, Talk, g3

CLIENT_HELLO = bytes([22, 3, 1, 0, 200]) + bytes(200)
UPGRADE = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def proxy(hello: bytes, wait_s: float) -> Talk:
    """A proxy that accepts a connection and takes the handshake, until the client gives up."""
    talk = Talk().open().say(0, hello)
    talk.time_ns += round(wait_s * SECOND_NS)
    talk.add(0, FIN | ACK)
    return talk


@pytest.mark.parametrize(
    ("hello", "name"), [(g3(HELLO), "Dask"), (CLIENT_HELLO, "TLS"), (UPGRADE, "WebSocket")]
)
def test_proxy_that_never_answers(read: Read, hello: bytes, name: str) -> None:
    row = only(read(proxy(hello, 30.0).packets), "unanswered handshake")
    assert row["what"] == (
        f"10.0.0.1 port 8786 accepted 1 connection and answered nothing to {name}'s handshake,"
        " for up to 30.0 s"
    )
    assert row["cost_s"] == pytest.approx(30.0, abs=0.1)


def test_impatient_client_proves_nothing(read: Read) -> None:
    assert findings(read(proxy(g3(HELLO), 1.0).packets)) == []


def test_answer_that_comes_late_is_a_slow_connect(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = Talk(("10.0.0.9", 40009), time_ns=cluster.at(1.0)).open().say(0, g3(HELLO))
    talk.time_ns += 4 * SECOND_NS
    cluster.talks.append(talk.say(1, g3(HELLO)))
    rows = read(cluster.packets).table("problems")["problem"]
    assert "unanswered handshake" not in rows and "slow connects" in rows
