"""Measure on this host how long the lab's own work takes: planning, provisioning, cold starts, API reads.

    .venv/bin/python benchmarks/machines.py               # everything, about twelve minutes
    .venv/bin/python benchmarks/machines.py plan          # only plans for 10, 50 and 200 workers
    .venv/bin/python benchmarks/machines.py containers    # only labs of 5 and 50 containers

Prints one line per result. On a shared host, compare ratios and CPU seconds rather than times.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "parts": ([str], "plan, machines or containers; all if none is named"),
            "--workers": ([int], "plan for these numbers, in place of 10, 50 and 200"),
        },
        smallest="plan --workers 1",
    )

from dasklab.machines.endpoint.change import Change, Step
from dasklab.machines.endpoint.observe import observe
from dasklab.machines.endpoint.observed import Observed, ObservedNode
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory import topology
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.machines.plan.lab_plan import plan
from dasklab.paths import SHARE as ROOT
from minipve.base import process

CHILDREN = resource.RUSAGE_CHILDREN


class Lab:
    """A lab with a client, a scheduler and ``workers`` workers, in a state folder of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        hosts = DEFAULT.read_text().replace("worker-[1:3]:", f"worker-[1:{workers}]:")
        (folder / "hosts.yml").write_text(hosts)
        (folder / "group_vars").symlink_to(DEFAULT.parent / "group_vars")
        os.environ["DASKLAB_STATE"] = str(folder / "state")
        os.environ["DASKLAB_INVENTORY"] = str(folder / "hosts.yml")
        self.inventory = Inventory(folder / "hosts.yml")

    def command(self, *argv: str) -> float:
        """Run ``dasklab`` and return its duration (s); exit if it fails."""
        start_s = time.monotonic()
        words = [sys.executable, "-m", "dasklab", *argv]
        result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"dasklab {' '.join(argv)} failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
        return time.monotonic() - start_s

    def cost(self, *argv: str) -> str:
        """Run ``dasklab`` and return a text with its duration and its CPU time."""
        before = resource.getrusage(CHILDREN)
        duration_s = self.command(*argv)
        after = resource.getrusage(CHILDREN)
        return f"{duration_s:.1f} s ({sum(after[:2]) - sum(before[:2]):.1f} s of CPU)"

    def api(self) -> Pve:
        """Return a connection to this lab's endpoint."""
        facts = json.loads((self.folder / "state" / "endpoint.json").read_text())
        fields = {k: v for k, v in facts.items() if k in Endpoint.model_fields}
        return Pve(Endpoint.model_validate(fields))


def reads(pve: Pve, n: int = 100) -> dict[str, float]:
    """Return the median duration (ms) of one GET by path, on an open connection."""
    medians_ms: dict[str, float] = {}
    for path in ("version", "nodes/pve/qemu", "nodes/pve/qemu/9101/config", "cluster/resources"):
        samples = []
        for _ in range(n):
            start_s = time.perf_counter()
            pve.api(path).get()
            samples.append((time.perf_counter() - start_s) * 1e3)
        medians_ms[path] = statistics.median(samples)
    return medians_ms


def cold_start(lab: Lab) -> tuple[float, float]:
    """Stop all machines and start them at once.

    Returns:
        The seconds until all machines accept logins, and the CPU seconds of all QEMU processes.
    """
    pve = lab.api()
    names = lab.inventory.hosts()
    guests = [lab.inventory.value(name, "guest")["vmid"] for name in names]
    addresses = [lab.inventory.value(name, "ansible_host") for name in names]
    connect = lab.inventory.value(names[0], "endpoint_facts")["connect"]
    with ThreadPoolExecutor(len(guests)) as pool:
        list(pool.map(lambda vmid: pve.call(power(vmid, "stop")), guests))
        start_s = time.monotonic()
        list(pool.map(lambda vmid: pve.call(power(vmid, "start")), guests))
        list(pool.map(log_in, names, [connect] * len(names), addresses))
    duration_s = time.monotonic() - start_s
    pids = [pve.api.nodes("pve").qemu(vmid).status.current.get()["pid"] for vmid in guests]
    return duration_s, sum(map(process.cpu_s, pids))


def power(vmid: int, verb: str) -> Change:
    """Return the call that starts or stops a machine."""
    return Change("POST", f"/nodes/pve/qemu/{vmid}/status/{verb}", f"{verb} {vmid}")


def log_in(name: str, connect: str, address: str) -> None:
    """Wait until sshd sends its greeting, which costs the guest little, then log in once."""
    while True:
        try:
            greeting = subprocess.run(
                [connect, address, "22"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=5,
                check=False,
            )
            if greeting.stdout.startswith(b"SSH-2.0"):
                break
        except subprocess.TimeoutExpired as error:
            if (error.stdout or b"").startswith(b"SSH-2.0"):
                break
        time.sleep(0.2)
    argv = [sys.executable, "-m", "dasklab", "ssh", name, "--", "true"]
    deadline = time.monotonic() + 60
    while (login := subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"cannot log in to {name}: {login.stderr.strip()}")
        time.sleep(0.2)


def measure_plans(numbers: Sequence[int]) -> None:
    """Time `dasklab plan` on an empty endpoint, and with 200 stopped workers."""
    for workers in numbers:
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder), workers)
            try:
                lab.command("minipve", "serve", "--detach")
                print(f"plan for {workers} workers, none exists: {lab.cost('plan')}", flush=True)
                if workers == 200:
                    create_s = create_machines(lab)
                    print(f"{workers + 2} linked clones: {create_s:.1f} s", flush=True)
                    print(f"plan for {workers} workers, all exist: {lab.cost('plan')}", flush=True)
            finally:
                lab.command("destroy", "--yes")
    empty = Observed((9, 2), {}, {"pve": ObservedNode(storages={"local": frozenset({"images", "import"})})})
    lab_of_500 = topology_of(Path("image.qcow2"), "ssh-ed25519 AAAA", [_machine(n) for n in range(1, 501)])
    start_s = time.perf_counter()
    plan(empty, lab_of_500)
    print(f"the function plan() for 500 machines: {(time.perf_counter() - start_s) * 1e3:.0f} ms")


def create_machines(lab: Lab) -> float:
    """Create the machines of a lab from an empty disk without starting them; return the seconds."""
    image = lab.folder / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1M"], check=True)
    key = lab.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    guests = [lab.inventory.value(name, "guest") for name in lab.inventory.hosts()]
    requested = topology_of(image, key.with_suffix(".pub").read_text(), guests)
    pve = lab.api()
    start_s = time.monotonic()
    for step in plan(observe(pve, requested), requested):
        chains = (tuple(c for c in chain if not c.path.endswith("/start")) for chain in step.chains)
        pve.apply([Step(step.name, tuple(chains))])
    return time.monotonic() - start_s


def topology_of(image: Path, key: str, guests: list[dict[str, Any]]) -> topology.Lab:
    """Return a lab of these machines on minipve."""
    return topology.Lab.model_validate(
        {
            "name": "dasklab",
            "pool": "dasklab",
            "node": "pve",
            "storage": "local",
            "image_storage": "local",
            "image": {"file": str(image)},
            "template_vmid": 9100,
            "bridges": ["vmbr1"],
            "ssh_public_key": key,
            "guests": guests,
        }
    )


def _machine(n: int) -> dict[str, Any]:
    mac = f"02:00:00:00:{n >> 8:02X}:{n & 255:02X}"
    nics = [{"mac": mac, "bridge": "vmbr1", "address": f"10.0.{n >> 8}.{n & 255}/16"}]
    return {"name": f"w{n}", "vmid": 9100 + n, "node": "pve", "cores": 1, "memory_mb": 64, "nics": nics}


def measure_machines() -> None:
    """Time the provisioning of five and ten machines, and API reads and cold starts of five."""
    durations_s: dict[int, float] = {}
    for count in (5, 10):
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder), count - 2)
            try:
                lab.command("minipve", "image")  # not part of the result: it is built once per recipe
                durations_s[count] = lab.command("up", "--only", "provision")
                print(f"provision {count} machines until all answer: {durations_s[count]:.1f} s", flush=True)
                if count == 5:
                    measure_lab(lab)
            finally:
                lab.command("destroy", "--yes")
    print(f"ten machines instead of five: x {durations_s[10] / durations_s[5]:.2f}")


def measure_lab(lab: Lab) -> None:
    """Time a second provisioning, API reads and cold starts of a lab that runs."""
    print(f"provision again, no changes: {lab.command('up', '--only', 'provision'):.1f} s")
    for path, median_ms in reads(lab.api()).items():
        print(f"GET {path}: {median_ms:.1f} ms")
    cores = min(os.cpu_count() or 1, 5)
    for _ in range(2):
        duration_s, cpu_s = cold_start(lab)
        ratio = duration_s / (cpu_s / cores)
        print(f"five cold starts: {duration_s:.1f} s, x {ratio:.2f} of {cpu_s:.1f} CPU s / {cores} cores")


def measure_containers() -> None:
    """Time labs of 5 and 50 containers: provision, configure, both again, remove."""
    provision, configure = ["up", "--only", "provision"], ["up", "--only", "configure"]
    parts = {
        "provision until all answer": [*provision, "--guests", "container"],
        "configure": configure,
        "provision again": provision,
        "configure again": configure,
        "remove": ["destroy", "--yes"],
    }
    durations_s: dict[int, list[float]] = {}
    for count in (5, 50):
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder), count - 2)
            try:
                lab.command("minipve", "image", "--container")
                durations_s[count] = [lab.command(*words) for words in parts.values()]
            finally:
                lab.command("destroy", "--yes")
        rows = zip(parts, durations_s[count], strict=True)
        print(f"{count} containers: {', '.join(f'{part} {s:.1f} s' for part, s in rows)}", flush=True)
    growth = zip(parts, durations_s[5], durations_s[50], strict=True)
    ratios = ", ".join(f"{part} x {fifty / five:.2f}" for part, five, fifty in growth)
    print(f"50 containers instead of 5 (linear: x 10): {ratios}")


PARTS: dict[str, Callable[..., None]] = {
    "plan": measure_plans,
    "machines": measure_machines,
    "containers": measure_containers,
}


def main(args: Namespace) -> None:
    for name in chosen(args.parts, PARTS):
        PARTS[name](*([args.workers or (10, 50, 200)] if name == "plan" else ()))


if __name__ == "__main__":
    main(ARGUMENTS)
