"""A lab for each file of end-to-end tests, with its own inventory, state and results. Caches are shared."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import SHARE as ROOT
from minipve.base import process
from minipve.base.paths import Paths

BIN = Path(sys.executable).parent


@dataclass
class Bench:
    """A lab, and the project's commands as a user would run them."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.copytree(DEFAULT.parent, self.folder / "inventory")
        self.environment = {
            **os.environ,
            "DASKLAB_INVENTORY": str(self.inventory),
            "DASKLAB_STATE": str(self.folder / "state"),
            "DASKLAB_RESULTS": str(self.folder / "results"),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            # Two labs run in parallel. More forks than cores would only compete for caches.
            "ANSIBLE_FORKS": str(os.cpu_count()),
            "COLUMNS": "200",
        }

    @property
    def inventory(self) -> Path:
        """The lab's inventory: a copy of the default one."""
        return self.folder / "inventory" / DEFAULT.name

    def playbook(self, name: str, *options: str) -> list[str]:
        """Return the command line of a playbook on the lab's inventory."""
        return ["ansible-playbook", "-i", str(self.inventory), f"playbooks/{name}.yml", *options]

    def run(self, *argv: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run a program of the project's environment, with both output streams in ``stdout``."""
        child = self.start(*argv)
        printed, _ = child.communicate(timeout=timeout)
        return subprocess.CompletedProcess(argv, child.returncode, printed)

    def good(self, *argv: str, timeout: float = 900) -> str:
        """Run a program that must succeed, and return its output."""
        process = self.run(*argv, timeout=timeout)
        output = process.stdout
        assert process.returncode == 0, f"{' '.join(argv)} ended with {process.returncode}:\n{output[-6000:]}"
        return output

    def bad(self, *argv: str) -> str:
        """Run a program that must fail without a traceback, and return its output."""
        process = self.run(*argv)
        assert process.returncode != 0, f"{' '.join(argv)} should have failed:\n{process.stdout[-3000:]}"
        assert "Traceback" not in process.stdout, process.stdout[-3000:]
        return process.stdout

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a program in its own process group, as a terminal does."""
        child = subprocess.Popen(
            [str(BIN / argv[0]), *argv[1:]],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.started.append(child)
        return child

    def interrupt(self, child: subprocess.Popen[str]) -> str:
        """Press Ctrl-C, and return the command's output."""
        os.killpg(child.pid, signal.SIGINT)
        return child.communicate(timeout=120)[0]

    def examine(self) -> set[str]:
        """Run the testinfra checks as a user would, and return the roles with skipped checks."""
        argv = ["pytest", "-q", "-p", "no:cacheprovider", "tests/infra"]
        output = self.good(*argv, f"--ansible-inventory={self.inventory}")
        assert int(re.findall(r"(\d+) passed", output)[-1]) > 200, output
        return set(re.findall(r"^SKIPPED .* tests/infra/test_(\w+)\.py", output, re.MULTILINE))

    def ssh(self, host: str, command: str) -> str:
        """Run a command on a host, and return its output."""
        return self.good("dasklab", "ssh", host, "--", command).strip()

    def ssh_each(self, hosts: Iterable[str], command: str) -> dict[str, str]:
        """Run a command on several hosts in parallel, and return the output of each."""
        children = {host: self.start("dasklab", "ssh", host, "--", command) for host in hosts}
        printed = {host: child.communicate(timeout=300)[0].strip() for host, child in children.items()}
        assert not any(child.returncode for child in children.values()), printed
        return printed

    def end(self) -> None:
        """Remove what a failed test left, with the project's own command."""
        for child in self.started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if child.stdout:
                child.stdout.close()
        if (self.folder / "state" / "endpoint.json").exists():
            self.good("dasklab", "destroy", "--yes")

    @property
    def endpoint(self) -> dict[str, Any]:
        """The facts of the lab's endpoint."""
        facts: dict[str, Any] = json.loads((self.folder / "state" / "endpoint.json").read_text())
        return facts

    def endpoint_pid(self) -> int:
        """Return the PID of the endpoint."""
        pid = process.recall(Paths(self.folder / "state", self.folder).endpoint_lock)
        assert pid is not None, "no endpoint runs"
        return pid

    def processes(self) -> list[str]:
        """Return the command lines of this lab's processes: those with its state folder, or a hash of it."""
        state = self.folder / "state"
        names = (str(self.folder), hashlib.sha1(str(state).encode()).hexdigest()[:8])
        lines = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if any(name in line for name in names) and "pytest" not in line:
                    lines.append(f"{entry.name}: {line[:200]}")
        return lines


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The bench. What a failed test leaves is removed at the end."""
    bench = Bench(tmp_path_factory.mktemp("lab"))
    yield bench
    bench.end()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution's wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    [path] = folder.glob("dasklab-*.whl")
    return path
