"""The wheel in a fresh environment: programs that must not know that there is a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dasklab.paths import SHARE as ROOT

CHECKOUT_WATCH = """
import sys

EVENTS = ("open", "os.listdir", "os.scandir", "os.chdir", "subprocess.Popen")

def watch(event, arguments):
    if event in EVENTS and {root!r} in repr(arguments):
        with open({log!r}, "a") as log:
            log.write(f"{{event}} {{arguments!r}}\\n")

sys.addaudithook(watch)
"""


@dataclass(frozen=True)
class Installed:
    """An environment that the wheel is installed in, and a home folder for its user.

    Every Python of the environment notes when it opens, lists or starts something in the checkout.
    """

    folder: Path
    log: Path

    @classmethod
    def make(
        cls, folder: Path, requirements: Iterable[str], python: str = sys.executable, lock: Path | None = None
    ) -> Installed:
        """Create an environment in ``folder`` and install ``requirements``: by pip, or by uv from a lock."""
        installed = cls(folder, folder / "checkout.log")
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        target = str(installed.program("python"))
        command = [target, "-m", "pip", "install", "--no-compile"]
        if lock:
            uv = [sys.executable, "-m", "uv", "--system-certs", "pip", "install"]
            command = [*uv, "--python", target, "--constraints", str(lock)]
        subprocess.run([*command, "--quiet", *requirements], check=True)
        [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
        code = CHECKOUT_WATCH.format(root=f"{ROOT}{os.sep}", log=str(installed.log))
        (packages / "checkout_watch.py").write_text(code)
        (packages / "checkout_watch.pth").write_text("import checkout_watch\n")
        (folder / "home").mkdir()
        return installed

    def program(self, name: str) -> Path:
        return self.folder / "venv" / "bin" / name

    @property
    def environment(self) -> dict[str, str]:
        """What a user's shell has: nothing of the checkout, and folders of its own for state and caches."""
        foreign = ("PYTHON", "DASKLAB_", "MINIPVE_", "ANSIBLE_", "XDG_", "VIRTUAL_ENV")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "DASKLAB_TEST_SESSION" or not name.startswith(foreign)
        }
        path = [entry for entry in os.environ["PATH"].split(os.pathsep) if not entry.startswith(str(ROOT))]
        return kept | {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.folder / "home"),
            "COLUMNS": "200",
        }

    def run(
        self, cwd: Path, name: str, *arguments: str, timeout_s: float = 600, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in ``cwd``; both streams are in ``stdout``."""
        return subprocess.run(
            [str(self.program(name)), *arguments],
            cwd=cwd,
            env={**self.environment, "PWD": str(cwd), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def good(self, cwd: Path, name: str, *arguments: str, **variables: str) -> str:
        """Run a program and return what it printed.

        Raises:
            AssertionError: it failed, or opened something in the checkout.
        """
        done = self.run(cwd, name, *arguments, **variables)
        command = f"{name} {' '.join(arguments)}"
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        assert not self.log.exists(), f"{command} used the checkout:\n{self.log.read_text()}"
        return done.stdout
