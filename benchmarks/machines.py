"""What the lab itself costs, on the machine at hand: planning, start-up, provisioning, reads of the endpoint.

    .venv/bin/python benchmarks/machines.py               # about twelve minutes; labs of its own
    .venv/bin/python benchmarks/machines.py plan          # only planning: 10, 50 and 200 workers
    .venv/bin/python benchmarks/machines.py containers    # only labs of 5 and of 50 containers

Prints one line a figure. Times of shared machines are noisy: ratios are what counts, and CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dasklab.machines import topology
from dasklab.machines.change import Change, Step
from dasklab.machines.endpoint import Endpoint
from dasklab.machines.inventory import DEFAULT, Inventory
from dasklab.machines.observe import observe
from dasklab.machines.observed import Observed, ObservedNode
from dasklab.machines.plan import plan
from dasklab.machines.proxmox import Pve
from dasklab.paths import SHARE as ROOT

TICKS = os.sysconf("SC_CLK_TCK")
CHILDREN = resource.RUSAGE_CHILDREN


class Lab:
    """A lab of ``machines`` machines in a state directory of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        hosts = DEFAULT.read_text().replace("worker-[1:3]:", f"worker-[1:{workers}]:")
        (folder / "hosts.yml").write_text(hosts)
        (folder / "group_vars").symlink_to(DEFAULT.parent / "group_vars")
        os.environ["DASKLAB_STATE"] = str(folder / "state")
        os.environ["DASKLAB_INVENTORY"] = str(folder / "hosts.yml")
        self.inventory = Inventory(folder / "hosts.yml")

    def command(self, *argv: str) -> float:
        """Run ``dasklab`` and return the seconds that it took."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "dasklab", *argv], cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"dasklab {' '.join(argv)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return time.monotonic() - began

    def cost(self, *argv: str) -> str:
        """Run ``dasklab`` and return its seconds, on the clock and on the CPU, as they are printed."""
        before, spent, after = resource.getrusage(CHILDREN), self.command(*argv), resource.getrusage(CHILDREN)
        cpu = sum(after[:2]) - sum(before[:2])
        return f"{spent:.1f} s ({cpu:.1f} s of CPU)"

    def api(self) -> Pve:
        """A connection to this lab's endpoint."""
        facts = json.loads((self.folder / "state" / "endpoint.json").read_text())
        fields = {k: v for k, v in facts.items() if k in Endpoint.model_fields}
        return Pve(Endpoint.model_validate(fields))


def reads(pve: Pve, n: int = 100) -> dict[str, float]:
    """Median milliseconds of one read, by path, on a connection that is open."""
    times: dict[str, float] = {}
    for path in ("version", "nodes/pve/qemu", "nodes/pve/qemu/9101/config", "cluster/resources"):
        samples = []
        for _ in range(n):
            began = time.perf_counter()
            pve.api(path).get()
            samples.append((time.perf_counter() - began) * 1e3)
        times[path] = statistics.median(samples)
    return times


def cold_start(lab: Lab) -> tuple[float, float]:
    """Stop all machines, start all at once: seconds until each lets one log in, QEMU's CPU seconds."""
    pve = lab.api()
    names = lab.inventory.hosts()
    guests = [lab.inventory.value(name, "guest")["vmid"] for name in names]
    addresses = [lab.inventory.value(name, "ansible_host") for name in names]
    connect = lab.inventory.value(names[0], "endpoint_facts")["connect"]
    with ThreadPoolExecutor(len(guests)) as pool:
        list(pool.map(lambda vmid: pve.call(power(vmid, "stop")), guests))
        began = time.monotonic()
        list(pool.map(lambda vmid: pve.call(power(vmid, "start")), guests))
        list(pool.map(log_in, names, [connect] * len(names), addresses))
    spent = time.monotonic() - began
    return spent, sum(cpu_s(pve.api.nodes("pve").qemu(vmid).status.current.get()["pid"]) for vmid in guests)


def power(vmid: int, verb: str) -> Change:
    """Start or stop a machine."""
    return Change("POST", f"/nodes/pve/qemu/{vmid}/status/{verb}", f"{verb} {vmid}")


def log_in(name: str, connect: str, address: str) -> None:
    """Wait for sshd's greeting (cheap for the guest), then log in once."""
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
    while (done := subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"{name} lets nobody log in: {done.stderr.strip()}")
        time.sleep(0.2)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def plans() -> None:
    """What `dasklab plan` takes from nothing, and where 200 machines are there and do not run."""
    for workers in (10, 50, 200):
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder), workers)
            try:
                lab.command("minipve", "serve", "--detach")
                print(f"plan for {workers} workers, nothing there: {lab.cost('plan')}", flush=True)
                if workers == 200:
                    made = make(lab)
                    print(f"{workers + 2} linked clones made: {made:.1f} s", flush=True)
                    print(f"plan for {workers} workers, all there: {lab.cost('plan')}", flush=True)
            finally:
                lab.command("destroy", "--yes")
    seen = Observed((9, 2), {}, {"pve": ObservedNode(storages={"local": frozenset({"images", "import"})})})
    began = time.perf_counter()
    plan(seen, wanted(Path("image.qcow2"), "ssh-ed25519 AAAA", [_machine(n) for n in range(1, 501)]))
    print(f"the plan itself, 500 machines: {(time.perf_counter() - began) * 1e3:.0f} ms")


def make(lab: Lab) -> float:
    """Make the machines of a lab, of an empty disk, and start none; return the seconds."""
    image = lab.folder / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1M"], check=True)
    key = lab.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    guests = [lab.inventory.value(name, "guest") for name in lab.inventory.hosts()]
    asked = wanted(image, key.with_suffix(".pub").read_text(), guests)
    pve = lab.api()
    began = time.monotonic()
    for step in plan(observe(pve, asked), asked):
        kept = (tuple(c for c in chain if not c.path.endswith("/start")) for chain in step.chains)
        pve.apply([Step(step.name, tuple(kept))])
    return time.monotonic() - began


def wanted(image: Path, key: str, guests: list[dict[str, Any]]) -> topology.Lab:
    """A lab of these machines on the local endpoint."""
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


def machines() -> None:
    """Labs of five and ten machines, and what reads and cold starts of five take."""
    took: dict[int, float] = {}
    for count in (5, 10):
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder), count - 2)
            try:
                lab.command("minipve", "image")  # built once a recipe, which is another figure
                took[count] = lab.command("up", "--only", "provision")
                print(f"provisioning {count} machines until all answer: {took[count]:.1f} s", flush=True)
                if count == 5:
                    figures(lab)
            finally:
                lab.command("destroy", "--yes")
    print(f"ten machines instead of five: x {took[10] / took[5]:.2f}")


def figures(lab: Lab) -> None:
    """What is measured on the lab of five."""
    again = lab.command("up", "--only", "provision")
    print(f"provisioning again, nothing to do: {again:.1f} s")
    for path, median_ms in reads(lab.api()).items():
        print(f"GET {path}: {median_ms:.1f} ms")
    cores = min(os.cpu_count() or 1, 5)
    for _ in range(2):
        spent, cpu = cold_start(lab)
        ratio = spent / (cpu / cores)
        print(f"five cold starts at once: {spent:.1f} s; x {ratio:.2f} of {cpu:.1f} CPU s on {cores} cores")


def containers() -> None:
    """Labs of 5 and 50 containers: made until all answer, configured, both again, removed."""
    provision, configure = ["up", "--only", "provision"], ["up", "--only", "configure"]
    parts = {
        "until all answer": [*provision, "--guests", "container"],
        "configured": configure,
        "answering again": provision,
        "configured again": configure,
        "removed": ["destroy", "--yes"],
    }
    took: dict[int, list[float]] = {}
    for count in (5, 50):
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder), count - 2)
            try:
                lab.command("minipve", "image", "--container")
                took[count] = [lab.command(*words) for words in parts.values()]
            finally:
                lab.command("destroy", "--yes")
        told = ", ".join(f"{part} {spent:.1f} s" for part, spent in zip(parts, took[count], strict=True))
        print(f"{count} containers: {told}", flush=True)
    growth = ", ".join(
        f"{part} x {many / few:.2f}" for part, few, many in zip(parts, took[5], took[50], strict=True)
    )
    print(f"fifty containers instead of five (linear: x 10): {growth}")


PARTS = {"plan": plans, "machines": machines, "containers": containers}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS, help="only this part")
    part = parser.parse_args().part
    for name in [part] if part else PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
