"""What containers cost on the machine at hand, through the endpoint's API: made, started, answering, removed.

    .venv/bin/python benchmarks/containers.py           # 5 and 50 of them; an endpoint of its own, as root
    .venv/bin/python benchmarks/containers.py 5 20 100  # other numbers

Prints one line a number. The template is `dasklab minipve image --container`, uploaded and unpacked before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxmoxer import ProxmoxAPI

ROOT = Path(__file__).parents[1]
FIRST, STORE = 200, "local"


def minipve(*words: str) -> str:
    """What ``dasklab minipve`` says; the benchmark ends when it fails."""
    command = [sys.executable, "-m", "minipve", *words, "--instance", "bench"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"dasklab minipve {' '.join(words)} failed:\n{done.stderr}")
    return done.stdout


class Node:
    """The endpoint, and the containers made on it."""

    def __init__(self, facts: dict[str, Any], template: Path) -> None:
        self.shell, self.volid = facts["shell"], f"{STORE}:vztmpl/{template.name}"
        names = {"token_name": facts["token_id"], "token_value": facts["token_secret"]}
        api = ProxmoxAPI(
            facts["host"],
            port=facts["port"],
            user=facts["user"],
            verify_ssl=facts["ca_file"],
            timeout=60,
            **names,
        )
        self.node: Any = api.nodes(facts["node"])
        with template.open("rb") as archive:
            self.ended([self.node.storage(STORE).upload.post(content="vztmpl", filename=archive)])

    def ended(self, upids: list[str]) -> None:
        """Wait for tasks, all of which must have succeeded."""
        for upid in upids:
            while (status := self.node.tasks(upid).status.get())["status"] == "running":
                time.sleep(0.05)
            if status["exitstatus"] != "OK":
                sys.exit(f"{upid}: {status['exitstatus']}")

    def make(self, count: int) -> None:
        """Make containers, which is one overlay each."""
        given = {"ostemplate": self.volid, "memory": 512, "pool": "bench", "features": "nesting=1"}
        nets = [f"name=eth0,bridge=vmbr0,ip=10.77.0.{10 + n}/24" for n in range(count)]
        self.ended([self.node.lxc.post(vmid=FIRST + n, net0=net, **given) for n, net in enumerate(nets)])

    def start(self, count: int) -> None:
        """Start them all at once."""
        self.ended([self.node.lxc(FIRST + n).status.start.post() for n in range(count)])

    def answer(self, count: int) -> None:
        """Wait until each answers on port 22."""
        line = "until nc -z -w 1 10.77.0.$n 22; do sleep 0.02; done"
        script = f"for n in $(seq 10 {9 + count}); do {line}; done"
        subprocess.run([self.shell, "-c", script], check=True, timeout=300)

    def remove(self, count: int) -> None:
        """End and remove them all at once."""
        self.ended([self.node.lxc(FIRST + n).delete(force=1) for n in range(count)])


def seconds(work: Callable[[int], None], count: int) -> float:
    """How long ``work`` takes."""
    began = time.monotonic()
    work(count)
    return time.monotonic() - began


def main(counts: list[int]) -> None:
    """Print the figures; nothing is left behind."""
    template = Path(minipve("image", "--container").splitlines()[-1])
    with tempfile.TemporaryDirectory(prefix="dasklab-bench-") as folder:
        os.environ["MINIPVE_STATE"] = state = f"{folder}/state"
        minipve("serve", "--detach")
        try:
            node = Node(json.loads(Path(state, "endpoint.json").read_text()), template)
            print(f"unpacked with the first: {seconds(node.make, 1):.2f} s")
            node.remove(1)
            for count in counts:
                made, started, answered = (seconds(w, count) for w in (node.make, node.start, node.answer))
                whole, removed = made + started + answered, seconds(node.remove, count)
                parts = f"made {made:.2f}, started {started:.2f}, answering {answered:.2f}"
                print(f"{count} containers: {whole:.2f} s ({parts}); removed in {removed:.2f} s")
        finally:
            minipve("stop", "--purge")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [5, 50])
