"""Machines: real QEMU processes without disks; power, live NIC changes, pending changes, locks, the agent."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from minipve.guests.qemu import power

from tests.contract.conftest import Allow, minipve, serve
from tests.contract.endpoint import Endpoint, refused
from tests.waiting import PATIENCE_S, until

MAC = "02:DA:5C:00:00:07"


@pytest.fixture
def running(endpoint: Endpoint, vmid: int) -> Iterator[int]:
    endpoint.create(vmid, name="tiny", net0=f"virtio={MAC},bridge={endpoint.bridge}", agent="enabled=1")
    endpoint.done(endpoint.vm(vmid).status.start.post())
    yield vmid


def _inside(endpoint: Endpoint, *command: str) -> str:
    """Run a command in the node's network and return its output."""
    assert endpoint.state is not None
    words = [str(endpoint.state / "enter-shell"), "-c", " ".join(command)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_state_and_counters_of_a_running_machine(endpoint: Endpoint, running: int) -> None:
    status = endpoint.vm(running).status.current.get()
    assert (status["status"], status["qmpstatus"], status["name"]) == ("running", "running", "tiny")
    assert set(status["nics"]) == {f"tap{running}i0"}
    assert set(status["nics"][f"tap{running}i0"]) == {"netin", "netout"}
    assert status["maxmem"] == 32 * 2**20
    rows = endpoint.api().nodes(endpoint.node).qemu.get()
    row = next(row for row in rows if int(row["vmid"]) == running)
    assert (row["status"], row["pid"]) == ("running", status["pid"])


def test_state_folder_with_a_long_path(real: bool, tmp_path: Path) -> None:
    """The kernel limits the path of a socket to 107 bytes."""
    if real:
        pytest.skip("needs a minipve of its own; the environment names a real Proxmox VE")
    state = tmp_path / ("a long name " * 10) / "state"
    node = serve(state)
    try:
        node.create(100, net0=f"virtio={MAC},bridge={node.bridge}", agent=1)
        node.done(node.vm(100).status.start.post())
        assert node.vm(100).status.current.get()["qmpstatus"] == "running"
        node.done(node.vm(100).status.stop.post())
    finally:
        assert minipve("stop", "--purge", state=state).returncode == 0


def test_qemu_is_sandboxed_and_outlives_the_endpoint(ours: Endpoint, running: int) -> None:
    if not power.sandbox_words():
        pytest.skip("this QEMU, or this kernel, has no seccomp")
    rows = Path(f"/proc/{ours.vm(running).status.current.get()['pid']}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in rows)
    assert status["Seccomp"].strip() == "2"
    assert ours.state is not None
    endpoint = (ours.state / "run/endpoint.lock").read_text().split()[0]
    assert status["PPid"].strip() != endpoint


def test_suspend_resume_reset(endpoint: Endpoint, running: int) -> None:
    status = endpoint.vm(running).status
    endpoint.done(status.suspend.post())
    assert status.current.get()["qmpstatus"] == "paused"
    endpoint.done(status.resume.post())
    assert status.current.get()["qmpstatus"] == "running"
    endpoint.done(status.reset.post())


def test_rate_cap_changes_live(ours: Endpoint, running: int) -> None:
    tap = f"tap{running}i0"
    assert "htb" not in _inside(ours, "tc", "qdisc", "show", "dev", tap)
    ours.vm(running).config.put(net0=f"virtio={MAC},bridge={ours.bridge},rate=0.125")
    assert "htb 1:" in _inside(ours, "tc", "qdisc", "show", "dev", tap)
    assert "rate 1048576bit" in _inside(ours, "tc", "class", "show", "dev", tap).replace(
        "1048Kbit", "1048576bit"
    )
    assert "ingress" in _inside(ours, "tc", "qdisc", "show", "dev", tap)
    assert not any("pending" in row for row in ours.vm(running).pending.get())
    ours.vm(running).config.put(net0=f"virtio={MAC},bridge={ours.bridge}")
    assert "htb" not in _inside(ours, "tc", "qdisc", "show", "dev", tap)


def test_link_down_changes_live(endpoint: Endpoint, running: int) -> None:
    config = endpoint.vm(running).config
    config.put(net0=f"virtio={MAC},bridge={endpoint.bridge},link_down=1")
    assert "link_down=1" in config.get(current=1)["net0"]


def test_new_nic_model_waits_for_the_next_start_without_hotplug(endpoint: Endpoint, running: int) -> None:
    vm, e1000 = endpoint.vm(running), f"e1000={MAC},bridge={endpoint.bridge}"
    vm.config.put(hotplug="disk,usb")
    vm.config.put(net0=e1000, cores=1, memory=48)
    assert vm.config.get(current=1)["net0"].startswith("virtio")
    assert vm.config.get()["net0"] == e1000
    waiting = {row["key"]: row["pending"] for row in vm.pending.get() if "pending" in row}
    assert waiting == {"net0": e1000, "memory": "48"}
    vm.config.put(revert="memory")
    vm.config.put(net0=f"{e1000},rate=1")
    endpoint.done(vm.status.stop.post())
    endpoint.done(vm.status.start.post())
    assert vm.config.get(current=1)["net0"] == f"{e1000},rate=1"
    assert vm.config.get(current=1)["memory"] == "32"


def test_failed_hotplug_is_not_retried_by_other_changes(endpoint: Endpoint, running: int) -> None:
    """A guest without an operating system does not release its NIC, so the change stays pending."""
    config = endpoint.vm(running).config
    start_s = time.monotonic()
    error = refused(config.put, net0=f"e1000={MAC},bridge={endpoint.bridge}")
    assert "error on hot-unplugging device 'net0'" in error.errors["net0"]
    failed_s = time.monotonic()
    config.put(memory=48)
    assert time.monotonic() - failed_s < failed_s - start_s, "a second try would wait six seconds again"
    waiting = {row["key"] for row in endpoint.vm(running).pending.get() if "pending" in row}
    assert waiting == {"net0", "memory"}


def test_seed_exists_after_a_failed_start(ours: Endpoint, vmid: int, allow: Allow) -> None:
    assert ours.state is not None
    ours.create(vmid, ide2="local:cloudinit", cores=128)
    assert re.fullmatch(
        r"MAX \d+ vcpus allowed per VM on this node", ours.failed(ours.vm(vmid).status.start.post())
    )
    assert (ours.state / f"seeds/vm-{vmid}-cloudinit.iso").exists()


def test_running_machine_cannot_start_be_removed_or_converted(endpoint: Endpoint, running: int) -> None:
    vm = endpoint.vm(running)
    assert endpoint.failed(vm.status.start.post()) == f"VM {running} already running"
    assert refused(vm.delete).content == f"VM {running} is running - destroy failed"
    assert refused(vm.template.post).content == "you can't convert a VM to template if VM is running"


def test_start_fails_without_its_bridge(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid)
    ours.root().nodes(ours.node).qemu(vmid).config.put(net0="virtio,bridge=nosuch")
    assert ours.failed(ours.vm(vmid).status.start.post()) == "bridge 'nosuch' does not exist"
    assert ours.vm(vmid).status.current.get()["status"] == "stopped"
    assert "tap" not in _inside(ours, "ip", "-br", "link")


def test_nic_without_bridge_is_a_warning(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid, net0=f"virtio={MAC}")
    status = endpoint.wait(endpoint.vm(vmid).status.start.post())
    assert status["exitstatus"] == "WARNINGS: 1"
    assert endpoint.vm(vmid).status.current.get()["status"] == "running"


def test_disk_of_a_running_machine_grows(endpoint: Endpoint, vmid: int, disks: str) -> None:
    endpoint.create(vmid, scsi0=f"{disks}:1,format=qcow2", scsihw="virtio-scsi-pci")
    vm = endpoint.vm(vmid)
    endpoint.done(vm.status.start.post())
    endpoint.done(vm.resize.put(disk="scsi0", size="+1G"))
    assert "size=2G" in vm.config.get()["scsi0"]
    content = endpoint.api().nodes(endpoint.node).storage(disks).content
    rows = content.get(vmid=vmid, content="images")
    assert [row["size"] for row in rows] == [2 * 2**30]
    assert endpoint.failed(vm.resize.put(disk="scsi0", size="1G")) == "shrinking disks is not supported"


def test_silent_agent_is_an_error(endpoint: Endpoint, running: int, allow: Allow) -> None:
    allow("VM.GuestAgent.Audit")
    error = refused(endpoint.vm(running).agent.ping.post)
    assert (error.status_code, error.content) == (500, "QEMU guest agent is not running")


def test_exec_on_a_stopped_machine_is_an_error(ours: Endpoint, vmid: int, allow: Allow) -> None:
    allow("VM.GuestAgent.Unrestricted")
    ours.create(vmid, agent="1")
    path = f"/nodes/{ours.node}/qemu/{vmid}/agent/exec"
    answer = ours.request("POST", path, ours.token, json={"command": []})
    assert (answer.status_code, answer.reason) == (500, f"VM {vmid} is not running")


def test_agent_command_without_an_agent_is_an_error(endpoint: Endpoint, vmid: int, allow: Allow) -> None:
    allow("VM.GuestAgent.Audit")
    endpoint.create(vmid)
    assert refused(endpoint.vm(vmid).agent.ping.post).content == "No QEMU guest agent configured"
    endpoint.done(endpoint.vm(vmid).status.start.post())
    assert refused(endpoint.vm(vmid).agent.ping.post).content == "No QEMU guest agent configured"


@pytest.fixture
def deaf(endpoint: Endpoint, vmid: int) -> Iterator[int]:
    """A machine without an operating system, which ignores agent and power button."""
    endpoint.create(vmid)
    endpoint.done(endpoint.vm(vmid).status.start.post())
    yield vmid


def test_shutdown_of_a_deaf_guest_needs_force(endpoint: Endpoint, deaf: int) -> None:
    vm = endpoint.vm(deaf)
    text = "VM quit/powerdown failed - got timeout"
    assert endpoint.failed(vm.status.shutdown.post(timeout=1)) == text
    endpoint.done(vm.status.shutdown.post(timeout=1, forceStop=1))
    assert vm.status.current.get()["status"] == "stopped"


def test_shutdown_is_interrupted_by_stop_or_by_hand(endpoint: Endpoint, deaf: int) -> None:
    vm, tasks = endpoint.vm(deaf), endpoint.api().nodes(endpoint.node).tasks
    slow = vm.status.shutdown.post(timeout=60)
    endpoint.done(vm.status.stop.post(**{"overrule-shutdown": 1}))
    assert endpoint.failed(slow) == "received interrupt"
    endpoint.done(vm.status.start.post())
    slow = vm.status.shutdown.post(timeout=60)
    tasks(slow).delete()
    assert endpoint.failed(slow) == "received interrupt"
    assert vm.status.current.get()["status"] == "running"


def _is_locked(file: Path) -> bool:
    """Return whether somebody holds a lock file."""
    if not file.exists():
        return False
    with file.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_clone_of_a_locked_machine_times_out(endpoint: Endpoint, deaf: int) -> None:
    vm = endpoint.vm(deaf)
    slow = vm.status.shutdown.post(timeout=20)
    if endpoint.state is None:
        time.sleep(1)
    else:
        lock = endpoint.state / f"run/lock/lock-{deaf}.conf"
        until(lambda: _is_locked(lock), "the shutdown to hold the lock")
    upid = vm.clone.post(newid=deaf + 1, pool=endpoint.pool)  # waits one second for the lock, a change ten
    path = f"/var/lock/qemu-server/lock-{deaf}.conf"
    assert endpoint.failed(upid) == f"can't lock file '{path}' - got timeout"
    assert refused(endpoint.vm(deaf + 1).config.get).status_code in (403, 500)
    endpoint.api().nodes(endpoint.node).tasks(slow).delete()


def test_config_lock_blocks_changes(ours: Endpoint, running: int) -> None:
    root = ours.root().nodes(ours.node).qemu(running)
    root.config.put(lock="backup")
    assert refused(ours.vm(running).config.put, onboot=0).content == "VM is locked (backup)"
    assert ours.failed(ours.vm(running).status.stop.post()) == "VM is locked (backup)"
    assert refused(ours.vm(running).config.put, skiplock=1, delete="lock").errors == {
        "skiplock": "Only root may use this option."
    }
    root.config.put(skiplock=1, delete="lock")


def test_killed_qemu_is_noticed_and_logged(ours: Endpoint, running: int) -> None:
    assert ours.state is not None
    os.kill(ours.vm(running).status.current.get()["pid"], signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    log = ours.state / "log/endpoint.log"
    while f"VM {running}: QEMU was killed" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ours.vm(running).status.current.get()["status"] == "stopped"
    assert f"tap{running}" not in _inside(ours, "ip", "-br", "link")
    ours.done(ours.vm(running).status.start.post())


def test_parallel_starts_start_a_machine_once(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)
    results: list[str] = []

    def start() -> None:
        results.append(endpoint.wait(endpoint.vm(vmid).status.start.post())["exitstatus"])

    clients = [threading.Thread(target=start) for _ in range(3)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert sorted(results) == sorted(["OK", *[f"VM {vmid} already running"] * 2])


def test_cloudinit_dump_and_seed(ours: Endpoint, vmid: int, allow: Allow) -> None:
    allow("VM.Config.Cloudinit")
    ours.create(
        vmid, name="seeded", ide2="local:cloudinit", ciuser="root", ipconfig0="ip=10.0.0.9/24", ciupgrade=0
    )
    vm: Any = ours.vm(vmid)
    vm.config.put(net0=f"virtio={MAC},bridge={ours.bridge}")
    user = vm.cloudinit.dump.get(type="user")
    assert "hostname: seeded" in user
    assert "package_upgrade" not in user
    assert f"mac_address: '{MAC.lower()}'" in vm.cloudinit.dump.get(type="network")
    before = vm.cloudinit.dump.get(type="meta")
    vm.config.put(net0=f"virtio={MAC},bridge={ours.bridge},rate=1")
    assert vm.cloudinit.dump.get(type="meta") == before
    vm.cloudinit.put()
    assert ours.state is not None
    assert list(Path(ours.state / "seeds").iterdir())
