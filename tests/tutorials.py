"""Run a tutorial's commands as they are written, one after the other, and compare what they print.

A page shows commands in ``console`` blocks; ``...`` stands for what was left out. Below
``<!-- numbers vary -->`` only the words are compared. The page says where its commands run: in the project's
folder, or in an empty one, which gets the files that the page shows (a block that begins with ``# NAME``).
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
CONSOLE = re.compile(r"^(<!-- numbers vary -->\n)?```console\n(.*?)^```$", re.M | re.S)
PROGRAM = re.compile(r"^```(?:python|yaml)\n(# ([\w.]+)\n.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NUMBER = re.compile(r"[+-]?\b\d[\d.,]*")
OWN_VARIABLES = ("DASKLAB_", "MINIPVE_", "PROXMOX_")  # they would change what a page shows
SERVERS = ("minipve serve", "LocalCluster")  # on ports that another program may have
MARK = "@end@"


@dataclass(frozen=True)
class Command:
    """A command of a page, what it prints, and whether its numbers differ from run to run."""

    line: str
    output: str
    varies: bool

    def matches(self, output: str) -> bool:
        """Return whether an output is the one that the page shows."""
        if not self.varies:
            return doctest.OutputChecker().check_output(self.output, output, ALIKE)
        shown, printed = NUMBER.sub("N", self.output), NUMBER.sub("N", output)
        return doctest.OutputChecker().check_output(shown, printed, ALIKE)


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page."""
    for varies, block in CONSOLE.findall(page):
        for line, output in COMMAND.findall(block):
            yield Command(line, output, bool(varies))


def run(name: str, folder: Path, variables: Mapping[str, str], timeout_s: float) -> None:
    """Run a page in one shell, as a user without any state, and check what each command prints.

    Args:
        name: the page's file without its suffix.
        folder: an empty folder for the user's home and work.
        variables: more environment variables.
        timeout_s: for the whole page.
    """
    page = (FOLDER / f"{name}.md").read_text()
    steps = list(commands(page))
    assert len(steps) >= 3
    work, home = folder / "work", folder / "home"
    work.mkdir()
    home.mkdir()
    script = folder / "page.sh"
    script.write_text("".join(f"{step.line}\nstatus=$?; echo; echo {MARK} $status\n" for step in steps))
    process = subprocess.run(
        [*_shell(page), str(script)],
        stdin=subprocess.DEVNULL,
        cwd=_prepared(page, work),
        env={**_environment(home), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    *outputs, rest = re.split(rf"\n{MARK} (\d+)\n", process.stdout)
    assert rest == "" and len(outputs) == 2 * len(steps), process.stdout
    for step, output, status in zip(steps, outputs[::2], outputs[1::2], strict=True):
        assert status == "0", f"$ {step.line}\n{output}"
        assert step.matches(output), f"$ {step.line}\n{output}"


def _prepared(page: str, work: Path) -> Path:
    if "In an empty folder" not in page:
        assert "in the project's folder" in page
        return ROOT
    for text, name in PROGRAM.findall(page):
        (work / name).write_text(text)
    return work


def _environment(home: Path) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(OWN_VARIABLES)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"HOME": str(home), "XDG_STATE_HOME": f"{home}/state", "PATH": path}


def _shell(page: str) -> list[str]:
    """Return the shell for a page. One that serves on a usual port has a network of its own."""
    if not any(server in page for server in SERVERS):
        return ["bash"]
    alone = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *alone, "--net", "sh", "-c", 'ip link set lo up; exec bash "$0"']
