"""Workers that do not join."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, only
from tests.unit.daskwire.build import HELLO, Talk, g3

REGISTRATION = {"op": "register-worker", "reply": False, "address": "tcp://10.0.0.5:3333", "name": "w1"}


def register(cluster: Cluster) -> Talk:
    talk = Talk(("10.0.0.5", 40009), isn=(77, 88), time_ns=cluster.at(1.0)).open()
    cluster.talks.append(talk.say(0, g3(HELLO)).say(1, g3(HELLO)).say(0, g3(REGISTRATION)))
    return talk


def test_refused_registration(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    register(cluster).say(1, g3({"status": "error", "message": "name taken, w1"}))
    row = only(read(cluster.packets), "unregistered worker")
    assert row["what"] == "the registration of this worker was refused: name taken, w1"


def test_registration_without_an_answer(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    register(cluster)
    capture = read(cluster.packets)
    row = only(capture, "unregistered worker")
    assert row["what"].startswith("the registration of this worker had no answer for 8.")
    assert row["cost_s"] == pytest.approx(8.5, abs=0.6)
    assert capture.table("nodes")["joined"].count("no answer") == 1


def test_answer_within_seconds(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = register(cluster)
    talk.time_ns += SECOND_NS
    talk.say(1, g3({"status": "OK"}))
    assert "unregistered worker" not in read(cluster.packets).table("problems")["problem"]
