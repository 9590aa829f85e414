"""Hostile clients and guests for the fuzz benchmark: silent connections, random agents, twin images."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minipve import process

from tests.contract.endpoint import Endpoint
from tests.contract.fuzzing import ANSWER_S, Caller, Fuzzer
from tests.hostile_agent import ANSWERS, HostileAgent

AGENT_REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "info", {}),
    ("POST", "ping", {}),
    ("GET", "network-get-interfaces", {}),
    ("GET", "get-fsinfo", {}),
    ("POST", "exec", {"command": ["true"]}),
    ("GET", "exec-status", {"pid": 1}),
    ("GET", "file-read", {"file": "/x"}),
    ("POST", "file-write", {"file": "/x", "content": "y"}),
]
BEGINNINGS = (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n", b"\0")
VICTIM, TWINS = 7310, (7311, 7312)
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@contextlib.contextmanager
def silent_clients(endpoint: Endpoint, count: int) -> Iterator[None]:
    """Open connections that stay silent, or stop in the middle of a request."""
    with contextlib.ExitStack() as links:
        for number in range(count):
            with contextlib.suppress(OSError):  # closed by the endpoint already
                link = socket.create_connection((endpoint.host, endpoint.port), timeout=20)
                links.enter_context(link).sendall(BEGINNINGS[number % len(BEGINNINGS)])
        yield


@contextlib.contextmanager
def hostile_guest(endpoint: Endpoint, chance: random.Random) -> Iterator[int]:
    """Yield the VMID of a running machine whose guest agent answers at random."""
    assert endpoint.state is not None
    root = endpoint.root()
    machines = root.nodes("pve").qemu
    endpoint.done(machines.post(vmid=VICTIM, memory=16, kvm=0, agent=1), root)
    endpoint.done(machines(VICTIM).status.start.post(), root)
    polite = chance.random() < 0.98  # it costs three seconds to find out that one is not
    agent = HostileAgent(endpoint.state / f"run/{VICTIM}.qga", lambda _: chance.choice(ANSWERS), polite)
    try:
        yield VICTIM
        # Whatever the agent answers, the task goes on; without a system, the machine ends by force.
        endpoint.done(machines(VICTIM).status.shutdown.post(timeout=1, forceStop=1), root)
    finally:
        agent.close()


def ask_agent(fuzzer: Fuzzer, caller: Caller, vmid: int, count: int) -> None:
    """Send requests to a machine's guest agent, and judge the answers."""
    for _ in range(count):
        verb, name, given = fuzzer.random.choice(AGENT_REQUESTS)
        path = f"/nodes/pve/qemu/{vmid}/agent/{name}"
        data, sample = fuzzer.encode(verb, path, given, caller)
        fuzzer.judge(caller, sample, fuzzer.exchange(data, ANSWER_S))
        fuzzer.sent += 1


def twin_images(folder: Path) -> list[Path]:
    """Create two disk images with different kernels and the same UUID."""
    images = []
    for name in ("one", "two"):
        tree = folder / name
        (tree / "boot/loader/entries").mkdir(parents=True)
        (tree / "boot/kernel").write_text(f"the kernel of {name}")
        (tree / "boot/initrd").write_text("an initramfs")
        entry = f"linux /boot/kernel\ninitrd /boot/initrd\noptions {name}\n"
        (tree / "boot/loader/entries/a.conf").write_text(entry)
        images.append(folder / f"{name}.raw")
        words = ["mke2fs", "-q", "-t", "ext4", "-U", UUID, "-d", tree, images[-1], "8M"]
        words[0] = str(process.which("mke2fs"))
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return images


def start_twins(endpoint: Endpoint, images: list[Path]) -> list[str]:
    """Start a machine from each image, and return a fault for each that got the other image's kernel.

    The starts fail, because QEMU refuses such kernels. The cache shows which kernel each machine got.
    """
    root, faults = endpoint.root(), []
    machines = root.nodes("pve").qemu
    assert endpoint.state is not None
    for vmid, image in zip(TWINS, images, strict=True):
        (endpoint.state / "storage/import" / image.name).write_bytes(image.read_bytes())
        disk = f"local:0,import-from=local:import/{image.name}"
        endpoint.done(machines.post(vmid=vmid, memory=16, kvm=0, scsi0=disk, boot="order=scsi0"), root)
        endpoint.wait(machines(vmid).status.start.post(), root)
    cache = endpoint.state.with_name("cache") / "boot"
    kernels = {copy.read_text() for copy in cache.glob("*/kernel")}
    if kernels != {"the kernel of one", "the kernel of two"}:
        faults.append(f"images with one UUID: the kernels taken out of them are {sorted(kernels)}")
    return faults
