"""Each file of end-to-end tests has a lab of its own: inventory, state, results; the caches are shared."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dasklab.machines.inventory import DEFAULT
from dasklab.paths import SHARE as ROOT
from minipve import launch, process
from minipve.paths import Paths

BIN = Path(sys.executable).parent


@dataclass
class Bench:
    """Commands of the project run as a user would, against this run's own lab."""

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
            # Two labs are at work side by side: more hosts at once than cores cost each other's caches.
            "ANSIBLE_FORKS": str(os.cpu_count()),
            "COLUMNS": "200",
        }

    @property
    def inventory(self) -> Path:
        """The lab's inventory: the default one, copied, as one run at a time works on an inventory's lab."""
        return self.folder / "inventory" / DEFAULT.name

    def playbook(self, name: str, *options: str) -> list[str]:
        """The command line of a playbook on the lab's inventory."""
        return ["ansible-playbook", "-i", str(self.inventory), f"playbooks/{name}.yml", *options]

    def run(self, *argv: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run a program of the project's environment; the output of both streams in ``stdout``."""
        child = self.start(*argv)
        printed, _ = child.communicate(timeout=timeout)
        return subprocess.CompletedProcess(argv, child.returncode, printed)

    def good(self, *argv: str, timeout: float = 900) -> str:
        """Run and expect success; what it printed."""
        done = self.run(*argv, timeout=timeout)
        assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        return done.stdout

    def bad(self, *argv: str) -> str:
        """Run and expect a failure that is explained: no traceback."""
        done = self.run(*argv)
        assert done.returncode != 0, f"{' '.join(argv)} should have failed:\n{done.stdout[-3000:]}"
        assert "Traceback" not in done.stdout, done.stdout[-3000:]
        return done.stdout

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start in a process group of its own, as a terminal would."""
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
        """Press Ctrl-C; what the command printed."""
        os.killpg(child.pid, signal.SIGINT)
        return child.communicate(timeout=120)[0]

    def examine(self) -> str:
        """Run the testinfra checks that a user runs too; how many passed and so on."""
        argv = ["pytest", "-q", "-p", "no:cacheprovider", "tests/infra", "--hosts=ansible://lab"]
        told = self.good(*argv, f"--ansible-inventory={self.inventory}", "--force-ansible")
        return told.strip().splitlines()[-1]

    def ssh(self, host: str, command: str) -> str:
        """What ``command`` printed on a machine."""
        return self.good("dasklab", "ssh", host, "--", command).strip()

    def ssh_each(self, hosts: Iterable[str], command: str) -> dict[str, str]:
        """What ``command`` printed on each of the machines, asked all at once."""
        asked = {host: self.start("dasklab", "ssh", host, "--", command) for host in hosts}
        printed = {host: child.communicate(timeout=300)[0].strip() for host, child in asked.items()}
        assert not any(child.returncode for child in asked.values()), printed
        return printed

    def end(self) -> None:
        """Remove what a failed test left, by the project's own command."""
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
        """The endpoint's facts."""
        facts: dict[str, Any] = json.loads((self.folder / "state" / "endpoint.json").read_text())
        return facts

    def endpoint_pid(self) -> int:
        """The process that answers the API."""
        pid = process.recall(launch.lock_file(Paths(self.folder / "state", self.folder)))
        assert pid is not None, "no endpoint runs"
        return pid

    def processes(self) -> list[str]:
        """Command lines of all processes of this lab: they name its state folder, or a hash of it."""
        state = self.folder / "state"
        names = (str(self.folder), hashlib.sha1(str(state).encode()).hexdigest()[:8])
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if any(name in line for name in names) and "pytest" not in line:
                    found.append(f"{entry.name}: {line[:200]}")
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The bench; whatever a failed test leaves is removed by the project's own command."""
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
