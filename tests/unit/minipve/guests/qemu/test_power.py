"""Which machines run, and which cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.guests.qemu import power, running

CONFIG = {
    "name": "worker-1",
    "cores": "2",
    "memory": "2048",
    "cpu": "x86-64-v2-AES",
    "agent": "enabled=1",
    "boot": "order=virtio0",
    "virtio0": "local:9103/vm-9103-disk-0.qcow2,discard=on",
    "ide2": "local:9103/vm-9103-cloudinit.qcow2,media=cdrom",
    "net0": "virtio=02:DA:5C:23:8F:00,bridge=vmbr0",
    "net1": "e1000=02:DA:5C:23:8F:01,bridge=vmbr1,rate=12.5",
    "net2": "rtl8139=02:DA:5C:23:8F:02,bridge=vmbr1",
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    disk = paths.state / "storage/images/9103/vm-9103-disk-0.qcow2"
    disk.parent.mkdir(parents=True)
    disk.touch()
    return paths


def test_stopped_machine(paths: Paths) -> None:
    paths.run.mkdir(parents=True)
    assert running.running_pid(9103, paths) is None
    assert running.state(9103, paths).status == "stopped"
    with pytest.raises(MachineError, match="VM 9103 not running"):
        power.reset(9103, paths)
    power.stop(9103, paths)


def test_pid_of_another_process_is_ignored(paths: Paths) -> None:
    paths.run.mkdir(parents=True)
    paths.runtime(9103, "pid").write_text("1\n")
    assert running.running_pid(9103, paths) is None
    assert running.state(9103, paths).status == "stopped"
    running.reap(9103, paths)  # as the endpoint's watch does
    assert not paths.runtime(9103, "pid").exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"template": "1"}, "you can't start a vm if it's a template"),
        ({"cores": "4096"}, r"MAX \d+ vcpus allowed per VM on this node"),
    ],
)
def test_start_is_refused(change: dict[str, str], text: str, paths: Paths) -> None:
    with pytest.raises(MachineError, match=text):
        power.start(9103, {**CONFIG, **change}, paths, lambda _line: None)
