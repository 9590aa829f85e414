"""Replay requests that were recorded with a real Proxmox VE 9.2, in their order, and compare the answers.

``tests/data/pve/recorded.json`` contains the facts: request, status, reason phrase, error texts, and the
answer's keys and values (``<number>``, ``<str>``, ``<mac>`` ... where the value depends on the node). A pair
that is not replayed has a reason.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint
from tests.contract.recorded import Recorder, check

PAIRS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data/pve/recorded.json").read_text())
REPLAYED = [pair for pair in PAIRS if "not_covered" not in pair]
SHARED = Path(__file__).parents[4] / "shared/pve"
RECORDINGS = [*(SHARED / "golden").glob("*.json"), SHARED / "golden_containers/pools_storage.json"]


@pytest.fixture(scope="module")
def recorder(real: bool, endpoint: Endpoint) -> Iterator[Recorder]:
    if real:
        pytest.skip("the replay makes users and VM 100 as root; the environment names a real Proxmox VE")
    made = Recorder(endpoint)
    yield made
    made.root.nodes(endpoint.node).qemu(100).config.put(skiplock=1, delete="lock")
    endpoint.done(made.root.nodes(endpoint.node).qemu(100).status.stop.post(), made.root)
    endpoint.done(made.root.nodes(endpoint.node).qemu(100).delete(), made.root)


def prepare(pair: dict[str, Any], recorder: Recorder) -> None:
    """Create what the recorder's node had at this point without a recorded request."""
    state, root = recorder.endpoint.state, recorder.root
    assert state is not None
    if pair["id"] == "vm_lifecycle/2":
        file = state / "etc/network/interfaces"
        lab = "auto vmbr1\niface vmbr1 inet manual\n\tbridge-ports none\n\tbridge-stp off\n\tbridge-fd 0\n"
        file.write_text(f"{file.read_text()}\n{lab}\tbridge-ageing 0\n#lab bridge\n")
        recorder.endpoint.done(root.nodes("pve").network.put(), root)
    if pair["id"] == "start_and_tasks/2":
        image = state / "storage/import/base.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "64M"], check=True)
    if pair["id"] == "pools_storage/1":
        root.pools.post(poolid="lab")
    if pair["id"] == "pools_storage/25":
        (state / "storage/import/base.qcow2").unlink()
        (state / "storage/import/a.qcow2").write_bytes(b"an image")
    if pair["id"] == "pools_storage/33":
        (state / "storage/import/b.qcow2").write_bytes(b"an image")
    if "rights" in pair:
        recorder.allow(pair["rights"])
    if pair["id"] == "live_changes/33":
        root.nodes("pve").qemu(100).config.put(lock="backup")


@pytest.mark.parametrize("pair", REPLAYED, ids=[pair["id"] for pair in REPLAYED])
def test_pair(recorder: Recorder, pair: dict[str, Any]) -> None:
    prepare(pair, recorder)
    check(pair, recorder.play(pair))


def test_every_recorded_pair_is_replayed_or_has_a_reason() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"the recordings are not at {SHARED}")
    recorded = {
        f"{file.stem}/{number}" for file in RECORDINGS for number in range(len(json.loads(file.read_text())))
    }
    assert {pair["id"] for pair in PAIRS} == recorded
    assert all(len(pair["not_covered"]) > 20 for pair in PAIRS if "not_covered" in pair)
