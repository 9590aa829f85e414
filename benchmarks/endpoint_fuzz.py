"""Fuzz minipve over HTTP: mutated requests from its own schema, and mutated bytes of HTTP.

    .venv/bin/python benchmarks/endpoint_fuzz.py                     # 50,000 requests, an endpoint of its own
    .venv/bin/python benchmarks/endpoint_fuzz.py --requests 5000 --seed 7

Callers: root with ticket and token, the lab's token, a token with few privileges, an anonymous caller, and
one with wrong credentials. Meanwhile hundreds of connections stay silent, a guest agent answers at random,
some JSON is nested deeply, and images with the same UUID boot.

First, on an instance of two nodes, each right of each method that writes is withheld once (the rights sweep):
the answer must be 403.

Faults are: a call that is not refused for the right that its caller lacks; an answer that contains a Python
error or is not HTTP; a traceback in the endpoint's log; memory that grows in the second half, when caches are
full; a machine that boots another one's kernel; a leftover process or file. The program prints each kind of
fault once, and a line of figures. The exit status is 1 if there is a fault.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--requests": (50_000, "how many"),
            "--seed": (1, "determines the requests"),
            "--parallel": (4, "requests at a time"),
        },
        smallest="--requests 200",
    )

ROOT = Path(__file__).resolve().parents[1]

from minipve.base import process

from tests.contract import fuzzing, hostile_peers, rights
from tests.contract.endpoint import Endpoint

STEP = 500  # requests between two clean-ups
GROWTH_MIB = 8
UNANSWERED_S = 0.5
SILENT, AGENT_REQUESTS = 400, 40  # in each step


def minipve(*words: str) -> None:
    """Run a minipve command on the instance of the environment."""
    subprocess.run([sys.executable, "-m", "minipve", *words, "--instance", "fuzz"], check=True, cwd=ROOT)


@contextmanager
def instance(state: Path, *options: str) -> Iterator[Endpoint]:
    """Yield the endpoint of a new instance, which is removed at the end."""
    os.environ["MINIPVE_STATE"] = str(state)
    minipve("serve", "--detach", "--unauthorized-delay", "0", *options)
    try:
        yield Endpoint.of_state(state, pool="fuzz")
    finally:
        minipve("stop", "--purge")


def sweep_rights(endpoint: Endpoint) -> list[str]:
    """Withhold each right once, print the figures, and return the faults."""
    start, cases = time.monotonic(), rights.cases()
    faults = rights.Sweeper(endpoint).faults()
    methods = len({(case.verb, case.path) for case in cases})
    duration_s = time.monotonic() - start
    print(
        f"rights sweep: {len(cases)} rights of {methods} methods in {duration_s:.0f} s; {len(faults)} faults"
    )
    return faults


def memory_mib(endpoint: Endpoint) -> float:
    """Return the resident memory of the endpoint's process."""
    assert endpoint.state is not None
    pid = (endpoint.state / "run/endpoint.lock").read_text().split()[0]
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def clear_up(endpoint: Endpoint) -> None:
    """Remove everything that root created, so that every step starts with the same load.

    This repeats until nothing is left, because a request may still run after its sender has disconnected.
    """
    root = endpoint.root()
    node = root.nodes("pve")
    while node.tasks.get(source="active") or node.qemu.get():
        for task in node.tasks.get(source="active"):
            node.tasks(task["upid"]).delete()
        remove_machines(endpoint)
        time.sleep(UNANSWERED_S)
    for row in root.access.users.get():
        if row["userid"] not in ("root@pam", endpoint.user, "little@pve"):
            root.access.users(row["userid"]).delete()


def remove_machines(endpoint: Endpoint) -> None:
    """Stop and destroy all machines."""
    root = endpoint.root()
    node = root.nodes("pve")
    for row in node.qemu.get():
        if row["status"] == "running":
            endpoint.wait(node.qemu(row["vmid"]).status.stop.post(skiplock=1), root)
        node.qemu(row["vmid"]).config.put(protection=0, skiplock=1)
        endpoint.wait(node.qemu(row["vmid"]).delete(skiplock=1, **{"destroy-unreferenced-disks": 1}), root)


def traffic(fuzzers: list[fuzzing.Fuzzer], requests: int) -> None:
    """Send ``requests`` in total from all fuzzers in parallel."""
    share = [threading.Thread(target=send_requests, args=(f, requests // len(fuzzers))) for f in fuzzers]
    for thread in share:
        thread.start()
    for thread in share:
        thread.join()


def send_requests(fuzzer: fuzzing.Fuzzer, requests: int) -> None:
    for _ in range(requests):
        fuzzer.once()


def step(
    endpoint: Endpoint, fuzzers: list[fuzzing.Fuzzer], agent_fuzzer: fuzzing.Fuzzer, requests: int
) -> None:
    """Send requests in parallel, with silent connections and a hostile guest agent."""
    with (
        hostile_peers.hostile_guest(endpoint, agent_fuzzer.random) as vmid,
        hostile_peers.silent_clients(endpoint, SILENT),
    ):
        agent = threading.Thread(
            target=hostile_peers.ask_agent, args=(agent_fuzzer, agent_fuzzer.callers[1], vmid, AGENT_REQUESTS)
        )
        agent.start()
        traffic(fuzzers, requests)
        agent.join()


def fuzz(endpoint: Endpoint, requests: int, seed: int, parallel: int) -> list[str]:
    """Send all requests, print the figures, and return the faults."""
    callers = fuzzing.callers(endpoint)
    *fuzzers, agent_fuzzer = [
        fuzzing.Fuzzer(endpoint, callers, random.Random(seed * 1000 + n)) for n in range(parallel + 1)
    ]
    start, early, faults = time.monotonic(), 0.0, list[str]()
    while True:
        if (total := sum(fuzzer.sent for fuzzer in (*fuzzers, agent_fuzzer))) >= requests:
            break
        if total >= requests // 2 and not early:
            early = memory_mib(endpoint)
        fuzzing.prepare(endpoint)
        step(endpoint, fuzzers, agent_fuzzer, min(STEP, requests - total))
        clear_up(endpoint)
        print(f"{total} of {requests}, {memory_mib(endpoint):.0f} MiB", end="\r", file=sys.stderr, flush=True)
    late = memory_mib(endpoint)
    statuses = sum((fuzzer.statuses for fuzzer in (*fuzzers, agent_fuzzer)), Counter[int]())
    faults += [fault for fuzzer in (*fuzzers, agent_fuzzer) for fault in fuzzer.faults]
    faults += [f"memory: {early:.0f} MiB at half time, {late:.0f} MiB at the end"] * (
        0 < early < late - GROWTH_MIB  # there is no half time if all are sent in one step
    )
    counts = ", ".join(f"{code or 'closed'}: {count}" for code, count in sorted(statuses.items()))
    print(
        f"{total} requests in {time.monotonic() - start:.0f} s, seed {seed}; {counts}; {len(faults)} faults; "
        f"memory {early:.0f} MiB at half time, {late:.0f} MiB at the end"
    )
    return faults


def log_faults(endpoint: Endpoint) -> list[str]:
    """Return the last line of each traceback in the endpoint's log."""
    assert endpoint.state is not None
    parts = (endpoint.state / "log/endpoint.log").read_text().split("Traceback (most recent call last):")[1:]
    faults = []
    for part in parts:
        lines = [line for line in part.splitlines() if line.strip()]
        last = next(n for n, line in enumerate(lines) if not line.startswith(" "))
        faults.append(f"log: {lines[last]}   {lines[last - 2].strip()}")
    return faults


def left_behind(state: Path) -> list[str]:
    """Return leftover processes and files of a purged endpoint."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    words = {pid: " ".join(process.command(pid)) for pid in pids if pid != os.getpid()}
    faults = [f"left: process {line[:200]}" for line in words.values() if str(state) in line]
    sectors = Path(tempfile.gettempdir()).glob("minipve-sector-*")
    faults += [f"left: {path}" for path in (state, *sectors) if path.exists()]
    return faults


def main(args: Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="endpoint-fuzz-") as name:
        os.environ["MINIPVE_CACHE"] = f"{name}/cache"
        sweep_state, state = Path(name) / "rights", Path(name) / "state"
        with instance(sweep_state, "--nodes", "2") as endpoint:
            faults = sweep_rights(endpoint)
            faults += log_faults(endpoint)
        with instance(state) as endpoint:
            faults += fuzz(endpoint, args.requests, args.seed, args.parallel)
            faults += log_faults(endpoint)
        faults += left_behind(sweep_state) + left_behind(state)
    for fault, count in Counter(faults).most_common(40):
        print(f"{count} x {fault}")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main(ARGUMENTS)
