"""The golden image booted as on a real node: by a BIOS from its own boot loader, with a cloud-init seed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dasklab.model.settings.packages import PINS
from minipve.base import process
from minipve.base.paths import Paths
from minipve.guests.qemu import cloudinit
from minipve.image import golden
from minipve.storage import qemu_img

PATIENCE_S = 600  # other tests run at the same time
NICS = {"e1000": "BC:24:11:00:00:01", "rtl8139": "BC:24:11:00:00:02"}
CONFIG = {
    "name": "worker-7",
    "ciuser": "root",
    "net0": f"e1000={NICS['e1000']},bridge=vmbr0",
    "net1": f"rtl8139={NICS['rtl8139']},bridge=vmbr1",
    "ipconfig0": "ip=192.168.1.17/24,gw=192.168.1.1",
    "ipconfig1": "ip=10.77.1.17/24",
}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """The socket of the guest agent of a machine with the study's emulated NICs and a SCSI disk."""
    disk, socket_file = tmp_path / "disk.qcow2", tmp_path / "qga"
    lab = replace(Paths.of(), requirements=PINS)  # the same image as other tests use
    image = golden.build(lab, process.silent)
    qemu_img.linked_clone(golden.export(image, tmp_path), disk)
    iso = cloudinit.build(9101, CONFIG, Paths(tmp_path / "state", tmp_path / "cache"))
    words = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-m", "512", "-accel", "tcg"]
    words += ["-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt", "-serial", f"file:{tmp_path / 'console'}"]
    words += [
        "-device",
        "virtio-scsi-pci",
        "-drive",
        f"if=none,id=disk,file={disk},format=qcow2,cache=unsafe",
    ]
    words += ["-device", "scsi-hd,drive=disk", "-drive", f"if=ide,index=2,media=cdrom,format=raw,file={iso}"]
    words += ["-device", "virtio-serial", "-chardev", f"socket,id=qga,path={socket_file},server=on,wait=off"]
    words += ["-device", "virtserialport,chardev=qga,name=org.qemu.guest_agent.0"]
    for model, mac in NICS.items():
        words += ["-netdev", f"user,id={model},restrict=on", "-device", f"{model},netdev={model},mac={mac}"]
    with subprocess.Popen(words) as machine:
        yield socket_file
        machine.terminate()


def ask(agent: Path, command: str, **arguments: Any) -> Any:
    """Ask the guest agent until it answers, and return the answer."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            with socket.socket(socket.AF_UNIX) as link, link.makefile("rw") as stream:
                link.settimeout(5)
                link.connect(str(agent))
                call = {"execute": command, "id": command} | ({"arguments": arguments} if arguments else {})
                stream.write(json.dumps(call) + "\n")
                stream.flush()
                return next(answer["return"] for answer in map(json.loads, stream) if answer["id"] == command)
        except (OSError, ValueError):
            time.sleep(1)
    return pytest.fail((agent.parent / "console").read_text(errors="replace")[-2000:])


@pytest.mark.timeout(1200)
def test_image_boots_as_on_a_real_node(agent: Path) -> None:
    assert ask(agent, "guest-get-host-name") == {"host-name": "worker-7"}
    addresses = {
        nic["hardware-address"].upper(): [f"{ip['ip-address']}/{ip['prefix']}" for ip in nic["ip-addresses"]]
        for nic in ask(agent, "guest-network-get-interfaces")
        if nic["name"] != "lo"
    }
    assert addresses == {NICS["e1000"]: ["192.168.1.17/24"], NICS["rtl8139"]: ["10.77.1.17/24"]}
    assert succeeds(agent, "/usr/bin/hostnamectl", ["set-hostname", "worker-8"])  # D-Bus is there
    assert ask(agent, "guest-get-host-name") == {"host-name": "worker-8"}
    is_time_service_active = ["is-active", "--quiet", "systemd-timesyncd.service"]
    until = time.monotonic() + PATIENCE_S
    while not succeeds(agent, "/bin/systemctl", is_time_service_active):
        assert time.monotonic() < until, "no time service runs, although there is a gateway"
        time.sleep(5)


def succeeds(agent: Path, program: str, words: list[str]) -> bool:
    """Return whether a program in the guest succeeds."""
    pid = ask(agent, "guest-exec", path=program, arg=words)["pid"]
    while not (status := ask(agent, "guest-exec-status", pid=pid))["exited"]:
        time.sleep(0.5)
    return bool(status["exitcode"] == 0)
