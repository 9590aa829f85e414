"""Fuzzing the local endpoint's HTTP face: requests from its own schema, bent; HTTP bent as bytes.

    .venv/bin/python benchmarks/endpoint_fuzz.py                     # 50,000 requests, an endpoint of its own
    .venv/bin/python benchmarks/endpoint_fuzz.py --requests 5000 --seed 7

Callers: root by ticket and token, the lab's token, one with hardly any rights, nobody, and a liar. Meanwhile
hundreds of connections say nothing, a guest agent answers at random, some JSON is nested deeply, and images
that share a UUID are booted.

A fault is an answer with a word of Python's in it, or none that is HTTP; a traceback in the endpoint's log;
memory that grows in the second half, when caches are full; a machine that is given another's kernel; a
process or a file that is left at the end. Prints each kind of fault once, and one line of figures; exit
status 1 when there is a fault.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from minipve import process  # noqa: E402

from tests.contract import fuzzing, hostility  # noqa: E402
from tests.contract.endpoint import Endpoint  # noqa: E402

STEP = 500  # requests between two clearings-up
GROWTH_MIB = 8
UNANSWERED_S = 0.5
SILENT, AGENT_REQUESTS = 400, 40  # in each step
STEPS_TO_TWINS = 5


def minipve(*words: str) -> None:
    """One verb of the endpoint, on the instance that the environment names."""
    subprocess.run([sys.executable, "-m", "minipve", *words, "--instance", "fuzz"], check=True, cwd=ROOT)


def memory_mib(endpoint: Endpoint) -> float:
    """The resident memory of the endpoint's process."""
    assert endpoint.state is not None
    pid = (endpoint.state / "run/endpoint.lock").read_text().split()[0]
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def clear_up(endpoint: Endpoint) -> None:
    """What root has made meanwhile goes again, so that the endpoint works as hard at the end as at first.

    Twice over: a request whose sender did not wait for the answer may still be at work on a machine.
    """
    root = endpoint.root()
    here = root.nodes("pve")
    while here.tasks.get(source="active") or here.qemu.get():
        for task in here.tasks.get(source="active"):
            here.tasks(task["upid"]).delete()
        remove_machines(endpoint)
        time.sleep(UNANSWERED_S)
    for row in root.access.users.get():
        if row["userid"] not in ("root@pam", endpoint.user, "little@pve"):
            root.access.users(row["userid"]).delete()


def remove_machines(endpoint: Endpoint) -> None:
    """Stop and destroy each."""
    root = endpoint.root()
    here = root.nodes("pve")
    for row in here.qemu.get():
        if row["status"] == "running":
            endpoint.wait(here.qemu(row["vmid"]).status.stop.post(skiplock=1), root)
        here.qemu(row["vmid"]).config.put(protection=0, skiplock=1)
        endpoint.wait(here.qemu(row["vmid"]).delete(skiplock=1, **{"destroy-unreferenced-disks": 1}), root)


def traffic(fuzzers: list[fuzzing.Fuzzer], requests: int) -> None:
    """Send ``requests`` in all, side by side."""
    share = [threading.Thread(target=several, args=(f, requests // len(fuzzers))) for f in fuzzers]
    for thread in share:
        thread.start()
    for thread in share:
        thread.join()


def several(fuzzer: fuzzing.Fuzzer, requests: int) -> None:
    """Send some, one after the other."""
    for _ in range(requests):
        fuzzer.once()


def step(endpoint: Endpoint, fuzzers: list[fuzzing.Fuzzer], asking: fuzzing.Fuzzer, requests: int) -> None:
    """Requests from all sides, with silent connections beside them and a hostile agent in a guest."""
    with (
        hostility.hostile_guest(endpoint, asking.random) as vmid,
        hostility.silent_clients(endpoint, SILENT),
    ):
        agent = threading.Thread(
            target=hostility.ask_agent, args=(asking, asking.callers[1], vmid, AGENT_REQUESTS)
        )
        agent.start()
        traffic(fuzzers, requests)
        agent.join()


def fuzz(endpoint: Endpoint, requests: int, seed: int, side_by_side: int, images: list[Path]) -> list[str]:
    """Send them all; print the figures and return the faults."""
    known = fuzzing.callers(endpoint)
    *fuzzers, asking = [
        fuzzing.Fuzzer(endpoint, known, random.Random(seed * 1000 + n)) for n in range(side_by_side + 1)
    ]
    began, early, faults = time.monotonic(), 0.0, list[str]()
    for number in itertools.count():
        if (sent := sum(fuzzer.sent for fuzzer in (*fuzzers, asking))) >= requests:
            break
        if sent >= requests // 2 and not early:
            early = memory_mib(endpoint)
        fuzzing.prepare(endpoint)
        step(endpoint, fuzzers, asking, min(STEP, requests - sent))
        clear_up(endpoint)
        if number % STEPS_TO_TWINS == 0:
            faults += hostility.twins_planted(endpoint, images)
            remove_machines(endpoint)
        print(f"{sent} of {requests}, {memory_mib(endpoint):.0f} MiB", end="\r", file=sys.stderr, flush=True)
    late = memory_mib(endpoint)
    statuses = sum((fuzzer.statuses for fuzzer in (*fuzzers, asking)), Counter[int]())
    faults += [fault for fuzzer in (*fuzzers, asking) for fault in fuzzer.faults]
    faults += [f"memory: {early:.0f} MiB at half time, {late:.0f} MiB at the end"] * (
        early + GROWTH_MIB < late
    )
    told = ", ".join(f"{code or 'closed'}: {count}" for code, count in sorted(statuses.items()))
    print(
        f"{sent} requests in {time.monotonic() - began:.0f} s, seed {seed}; {told}; {len(faults)} faults; "
        f"memory {early:.0f} MiB at half time, {late:.0f} MiB at the end"
    )
    return faults


def log_faults(endpoint: Endpoint) -> list[str]:
    """The last line of each traceback in the endpoint's log."""
    assert endpoint.state is not None
    parts = (endpoint.state / "log/endpoint.log").read_text().split("Traceback (most recent call last):")[1:]
    found = []
    for part in parts:
        lines = [line for line in part.splitlines() if line.strip()]
        last = next(n for n, line in enumerate(lines) if not line.startswith(" "))
        found.append(f"log: {lines[last]}   {lines[last - 2].strip()}")
    return found


def left_behind(state: Path) -> list[str]:
    """What is still there of an endpoint that has been purged."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    words = {pid: " ".join(process.command(pid)) for pid in pids if pid != os.getpid()}
    faults = [f"left: process {line[:200]}" for line in words.values() if str(state) in line]
    faults += [
        f"left: {path}"
        for path in (state, *Path(tempfile.gettempdir()).glob("minipve-nbd-*"))
        if path.exists()
    ]
    return faults


def main() -> None:
    """Start an endpoint, fuzz it, remove it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--side-by-side", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="endpoint-fuzz-") as name:
        state = Path(name) / "state"
        os.environ |= {"MINIPVE_STATE": str(state), "MINIPVE_CACHE": f"{name}/cache"}
        minipve("serve", "--detach", "--unauthorized-delay", "0")
        try:
            endpoint = Endpoint.of_state(state, pool="fuzz")
            images = hostility.twin_images(Path(name))
            faults = fuzz(endpoint, args.requests, args.seed, args.side_by_side, images)
            faults += log_faults(endpoint)
        finally:
            minipve("stop", "--purge")
        faults += left_behind(state)
    for fault, count in Counter(faults).most_common(40):
        print(f"{count} x {fault}")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
