"""Requests of exporters, inventory plugins and web pages: load over time, lists that are always empty."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint, refused
from tests.waiting import PATIENCE_S


def test_load_over_time(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)
    rrd = endpoint.vm(vmid).rrddata
    assert refused(rrd.get).errors == {"timeframe": "property is missing and it is not optional"}
    if endpoint.state is None:
        pytest.skip("a real node has no file of a VM until it has first sampled it")
    for frame, step in (("hour", 60), ("week", 1800)):
        times = [row["time"] for row in rrd.get(timeframe=frame)]
        assert {b - a for a, b in itertools.pairwise(times)} == {step}
        assert times[-1] <= time.time() < times[-1] + step + 5


def test_load_of_node_and_storage(ours: Endpoint, allow: Allow) -> None:
    allow("Sys.Audit", path=f"/nodes/{ours.node}")
    node = ours.api().nodes(ours.node)
    deadline = time.monotonic() + PATIENCE_S  # the first sample is taken a second after the start
    while not (rows := [row for row in node.rrddata.get(timeframe="hour") if len(row) > 1]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert {"cpu", "maxcpu", "loadavg", "memtotal", "memused", "roottotal", "rootused"} <= set(rows[-1])
    stored = node.storage("local").rrddata.get(timeframe="day", cf="MAX")
    assert any(0 < row["used"] <= row["total"] for row in stored if "used" in row)


@pytest.mark.parametrize("what", ["rrddata", "monitor", "snapshot"])
def test_permission_comes_before_validation(endpoint: Endpoint, vmid: int, what: str) -> None:
    verb = "GET" if what == "rrddata" else "POST"
    answer = endpoint.request(verb, f"/nodes/{endpoint.node}/qemu/{vmid}/{what}")
    assert answer.status_code == 403
    assert answer.reason.startswith(f"Permission check failed (/vms/{vmid}, ")


def test_monitor_is_read_only(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid)
    post = ours.root().nodes(ours.node).qemu(vmid).monitor.post
    assert refused(post).errors == {"command": "property is missing and it is not optional"}
    assert post(command="info status") == f"ERROR: VM {vmid} not running\n"
    ours.done(ours.vm(vmid).status.start.post())
    assert post(command="info status").startswith("VM status: running")
    assert "not supported here" in refused(post, command="quit").content


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/cluster/options", {"mac_prefix": "BC:24:11"}),
        ("/cluster/backup", []),
        ("/cluster/replication", []),
        ("/cluster/ha/resources", []),
        ("/cluster/ha/rules", []),
        ("/nodes/pve/replication", []),
        (
            "/cluster/ha/status/current",
            [{"id": "quorum", "type": "quorum", "node": "pve", "status": "OK", "quorate": 1}],
        ),
        ("/nodes/pve/subscription", {"status": "notfound", "message": "There is no subscription key"}),
    ],
)
def test_lists_without_entries(ours: Endpoint, path: str, answer: Any) -> None:
    assert ours.root()(path.strip("/")).get() == answer


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/cluster/ha/groups", 500, "ha groups have been migrated to rules"),
        ("/nodes/pve/storage/nosuch/status", 400, "No such storage."),
    ],
)
def test_reads_that_a_node_refuses_are_refused(ours: Endpoint, path: str, status: int, words: str) -> None:
    error = refused(ours.root()(path.strip("/")).get)
    assert error.status_code == status and words in f"{error.content} {error.errors}"


def test_every_vm_is_listed_as_not_backed_up(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid, name="precious")
    rows = ours.root().cluster("backup-info")("not-backed-up").get()
    assert {"vmid": vmid, "type": "qemu", "name": "precious"} in rows
    assert refused(ours.api().cluster.backup.get).content == "Permission check failed (/, Sys.Audit)"


def test_storage_configuration(ours: Endpoint) -> None:
    row = ours.root().storage("local").get()
    assert (row["storage"], row["type"]) == ("local", "dir")
    assert refused(ours.root().storage("other").get).content == "storage 'other' does not exist"
