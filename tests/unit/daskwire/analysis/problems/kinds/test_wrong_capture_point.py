"""Traffic that Dask's messages prove, and that is not in the capture."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings
from tests.unit.daskwire.build import HELLO, Talk, g3


def test_transfers_that_were_not_captured_show_the_wrong_capture_point(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.streams["w1"]
    for number in range(4):
        steps = [{"action": "transfer", "start": 1.7e9, "stop": 1.7e9 + 1}]
        talk.say(1, g3([{"op": "compute-task", "key": f"t{number}"}]))
        talk.say(0, g3([{"op": "task-finished", "key": f"t{number}", "thread": 1, "startstops": steps}]))
    row = findings(read(cluster.packets))[0]
    assert row["problem"] == "wrong capture point" and "report 4 tasks with transfers" in row["what"]


def test_client_only_shows_the_wrong_capture_point(read: Read) -> None:
    client = Talk(client=("10.0.0.9", 50000)).open().say(0, g3(HELLO)).say(1, g3(HELLO))
    client.say(0, g3({"op": "register-client", "client": "c", "reply": False})).say(1, g3({"status": "OK"}))
    client.say(0, g3([{"op": "update-graph"}])).say(1, g3([{"op": "key-in-memory", "key": "x"}]))
    assert findings(read(client.packets))[0]["problem"] == "wrong capture point"
