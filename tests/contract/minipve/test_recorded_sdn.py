"""Replay the recorded requests on zones and vnets (pve-network 1.3), in their order; see test_recorded.py.

``prepare`` repeats the removals between recorded requests. It also waits for the end of every apply: a task
on each node whose UPID no answer contains.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint
from tests.contract.lab import tiny
from tests.contract.recorded import Recorder, check
from tests.waiting import PATIENCE_S

DATA = Path(__file__).parents[2] / "data/pve/recorded_sdn.json"
PAIRS: list[dict[str, Any]] = json.loads(DATA.read_text())
REPLAYED = [pair for pair in PAIRS if "not_covered" not in pair]
RECORDING = Path(__file__).parents[4] / "shared/pve/golden_containers/sdn.json"


@pytest.fixture(scope="module")
def recorder(lxc: None, start: Callable[..., Endpoint]) -> Recorder:
    made = Recorder(start("--management", "192.168.1.10/24"))
    made.root.pools.post(poolid="lab")
    made.root.nodes("pve").network.post(iface="vmbr1", type="bridge", autostart=1, comments="lab bridge")
    made.endpoint.done(made.root.nodes("pve").network.put(), made.root)
    assert made.endpoint.state is not None
    archive = made.endpoint.state / "storage/template/cache/debian_1_amd64.tar.gz"
    archive.write_bytes(tiny.template(systemd=True))
    return made


def prepare(pair: dict[str, Any], recorder: Recorder) -> None:
    """Create what the recorder's node had at this point without a recorded request."""
    node = recorder.root.nodes("pve")
    _await_reloads(recorder.endpoint, node)
    if pair["path"] == "/nodes/pve/lxc":
        for row in node.lxc.get():
            recorder.endpoint.done(node.lxc(row["vmid"]).delete(), recorder.root)
    if "rights" in pair:
        recorder.allow(pair["rights"])


def _await_reloads(endpoint: Endpoint, node: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(row["status"] == "RUNNING" for row in node.tasks.get(typefilter="srvreload", source="all")):
        assert time.monotonic() < deadline, "the network is not reloaded"
        time.sleep(0.02)


@pytest.mark.parametrize("pair", REPLAYED, ids=[pair["id"] for pair in REPLAYED])
def test_pair(recorder: Recorder, pair: dict[str, Any]) -> None:
    prepare(pair, recorder)
    answer = recorder.play(pair)
    check(pair, answer)
    if "typefilter" in pair.get("params", {}):
        recorder.upid = answer.json()["data"][0]["upid"]


def test_every_recorded_pair_is_replayed_or_has_a_reason() -> None:
    if not RECORDING.is_file():
        pytest.skip(f"the recording is not at {RECORDING}")
    recorded = {f"sdn/{number}" for number in range(len(json.loads(RECORDING.read_text())))}
    assert {pair["id"] for pair in PAIRS} == recorded
