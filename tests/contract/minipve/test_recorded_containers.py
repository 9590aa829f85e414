"""Replay the recorded requests on containers (pve-container 6.1), in their order; see test_recorded.py.

A tiny archive stands in for the recorder's Debian template. The recorder removed containers between requests
without recording it; ``prepare`` does the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint
from tests.contract.lab import tiny
from tests.contract.recorded import Recorder, check
from tests.waiting import PATIENCE_S

DATA = Path(__file__).parents[2] / "data/pve/recorded_containers.json"
PAIRS: list[dict[str, Any]] = json.loads(DATA.read_text())
REPLAYED = [pair for pair in PAIRS if "not_covered" not in pair]
RECORDING = Path(__file__).parents[4] / "shared/pve/golden_containers/lxc_lifecycle.json"


@pytest.fixture(scope="module")
def recorder(real: bool, own_for_all: Endpoint, lxc: None) -> Iterator[Recorder]:
    if real:
        pytest.skip("the replay makes users and containers as root; the environment names a real Proxmox VE")
    made = Recorder(own_for_all)
    made.archives = {False: tiny.template(), True: tiny.template(systemd=True)}
    made.root.pools.post(poolid="lab")
    made.root.nodes("pve").network.post(iface="vmbr1", type="bridge", autostart=1)
    own_for_all.done(made.root.nodes("pve").network.put(), made.root)
    yield made


def prepare(pair: dict[str, Any], recorder: Recorder) -> None:
    """Create what the recorder's node had at this point without a recorded request."""
    assert recorder.endpoint.state is not None
    node, number = recorder.root.nodes("pve"), pair["id"].partition("/")[2]
    there = {row["vmid"] for row in node.lxc.get()}
    made = pair.get("data", {}).get("vmid") if pair["path"] == "/nodes/pve/lxc" else None
    free = {made} if "already exists" not in pair.get("reason", "") else set()
    for vmid in there & free | (there if number == "96" else set()):
        recorder.endpoint.done(node.lxc(vmid).delete(force=1), recorder.root)
    if number == "123":
        recorder.endpoint.done(node.lxc(120).delete(), recorder.root)
    if number in ("160", "166"):
        _await_address(node.lxc(121))
    if number == "203":
        recorder.endpoint.done(node.lxc(122).delete(force=1), recorder.root)
    if number == "208":
        (recorder.endpoint.state / "storage/template/cache/lab2.tar.gz").write_bytes(b"an archive")
    if "rights" in pair:
        recorder.allow(pair["rights"])


def _await_address(container: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum("inet" in row and "inet6" in row for row in container.interfaces.get()) < 3:
        assert time.monotonic() < deadline, "the container has no addresses"
        time.sleep(0.02)


@pytest.mark.parametrize("pair", REPLAYED, ids=[pair["id"] for pair in REPLAYED])
def test_pair(recorder: Recorder, pair: dict[str, Any]) -> None:
    prepare(pair, recorder)
    answer = recorder.play(pair)
    if "sha256" in json.dumps(pair.get("body")):
        pair = json.loads(json.dumps(pair).replace("<sha256>", recorder.digest))
    check(pair, answer)


def test_every_recorded_pair_is_replayed_or_has_a_reason() -> None:
    if not RECORDING.is_file():
        pytest.skip(f"the recording is not at {RECORDING}")
    recorded = {f"lxc_lifecycle/{number}" for number in range(len(json.loads(RECORDING.read_text())))}
    assert {pair["id"] for pair in PAIRS} == recorded
    assert all(len(pair["not_covered"]) > 20 for pair in PAIRS if "not_covered" in pair)
