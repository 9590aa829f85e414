"""Measure on this host how long containers take to be created, to start, to answer, and to be removed.

    .venv/bin/python benchmarks/containers.py           # 5 and 50 containers, as root
    .venv/bin/python benchmarks/containers.py 5 20 100  # other numbers

The containers are created through the API of a separate minipve, from the golden image's template. The
template is uploaded and unpacked before. Prints one line per number.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {"counts": ([int], "numbers of containers; 5 and 50 if none is named")},
        smallest="1",
        needs=("root", "lxc-start"),
    )

from proxmoxer import ProxmoxAPI

ROOT = Path(__file__).parents[1]
FIRST_VMID, STORE = 200, "local"


def minipve(*words: str) -> str:
    """Run minipve and return its output; exit if it fails."""
    command = [sys.executable, "-m", "minipve", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"minipve {' '.join(words)} failed:\n{result.stderr}")
    return result.stdout


class Node:
    """A minipve node and the containers of the benchmark on it."""

    def __init__(self, facts: dict[str, Any], template: Path) -> None:
        self.shell, self.volid = facts["shell"], f"{STORE}:vztmpl/{template.name}"
        api = ProxmoxAPI(
            facts["host"],
            port=facts["port"],
            user=facts["user"],
            token_name=facts["token_id"],
            token_value=facts["token_secret"],
            verify_ssl=facts["ca_file"],
            timeout=60,
        )
        self.node: Any = api.nodes(facts["node"])
        with template.open("rb") as archive:
            self.wait([self.node.storage(STORE).upload.post(content="vztmpl", filename=archive)])

    def wait(self, upids: list[str]) -> None:
        """Wait for tasks; exit if one fails."""
        for upid in upids:
            while (status := self.node.tasks(upid).status.get())["status"] == "running":
                time.sleep(0.05)
            if status["exitstatus"] != "OK":
                sys.exit(f"{upid}: {status['exitstatus']}")

    def create(self, count: int) -> None:
        options = {"ostemplate": self.volid, "memory": 512, "features": "nesting=1"}
        nets = [f"name=eth0,bridge=vmbr0,ip=10.77.0.{10 + n}/24" for n in range(count)]
        self.wait(
            [self.node.lxc.post(vmid=FIRST_VMID + n, net0=net, **options) for n, net in enumerate(nets)]
        )

    def start(self, count: int) -> None:
        self.wait([self.node.lxc(FIRST_VMID + n).status.start.post() for n in range(count)])

    def wait_for_ssh(self, count: int) -> None:
        """Wait until every container accepts connections to port 22."""
        line = "until nc -z -w 1 10.77.0.$n 22; do sleep 0.02; done"
        script = f"for n in $(seq 10 {9 + count}); do {line}; done"
        subprocess.run([self.shell, "-c", script], check=True, timeout=300)

    def remove(self, count: int) -> None:
        self.wait([self.node.lxc(FIRST_VMID + n).delete(force=1) for n in range(count)])


def duration_s(work: Callable[[int], None], count: int) -> float:
    start_s = time.monotonic()
    work(count)
    return time.monotonic() - start_s


def main(args: Namespace) -> None:
    """Start a minipve, print one line per number of containers, and remove everything."""
    template = Path(minipve("image", "--container").splitlines()[-1])
    with tempfile.TemporaryDirectory(prefix="dasklab-bench-") as folder:
        os.environ["MINIPVE_STATE"] = state = f"{folder}/state"
        minipve("serve", "--detach")
        try:
            node = Node(json.loads(Path(state, "endpoint.json").read_text()), template)
            print(f"first container, with unpacking the template: {duration_s(node.create, 1):.2f} s")
            node.remove(1)
            for count in args.counts or (5, 50):
                create_s, start_s = duration_s(node.create, count), duration_s(node.start, count)
                ssh_s, remove_s = duration_s(node.wait_for_ssh, count), duration_s(node.remove, count)
                parts = f"create {create_s:.2f}, start {start_s:.2f}, until ssh answers {ssh_s:.2f}"
                total_s = create_s + start_s + ssh_s
                print(f"{count} containers: {total_s:.2f} s ({parts}); remove {remove_s:.2f} s")
        finally:
            minipve("stop", "--purge")


if __name__ == "__main__":
    main(ARGUMENTS)
