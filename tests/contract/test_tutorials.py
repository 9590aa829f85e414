"""The commands of a tutorial run as they are written, one after the other, and print what the page shows."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSOLE = re.compile(r"^(<!-- numbers vary -->\n)?```console\n(.*?)^```$", re.M | re.S)
PROGRAM = re.compile(r"^```python\n(# ([\w.]+)\n.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NUMBER = re.compile(r"[+-]?\b\d[\d.,]*")
PAGES = ("capture", "cluster", "proxmox")
PROGRAMS = ("DASKLAB_", "MINIPVE_", "PROXMOX_")  # their variables would change what a page shows
MARK = "@end@"


@dataclass(frozen=True)
class Command:
    """A command of a page, what it prints, and whether its numbers differ from run to run."""

    line: str
    output: str
    varies: bool

    def matches(self, output: str) -> bool:
        if not self.varies:
            return doctest.OutputChecker().check_output(self.output, output, ALIKE)
        texts = (NUMBER.sub("N", text) for text in (self.output, output))
        return doctest.OutputChecker().check_output(*texts, ALIKE)


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page."""
    for varies, block in CONSOLE.findall(page):
        for line, output in COMMAND.findall(block):
            yield Command(line, output, bool(varies))


def folder_of(page: str, scratch: Path) -> Path:
    """Return where the page says that its commands run: an empty folder, or the project's."""
    if "In an empty folder" not in page:
        assert "in the project's folder" in page
        return ROOT
    for text, name in PROGRAM.findall(page):
        (scratch / name).write_text(text)
    return scratch


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user without any state, with this checkout's commands."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(PROGRAMS)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"HOME": str(home), "XDG_STATE_HOME": f"{home}/state", "PATH": path}


def shell(page: str) -> list[str]:
    """Return the shell for a page. One that serves on a fixed port has a network of its own."""
    if "minipve serve" not in page:
        return ["bash", "-s"]
    alone = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *alone, "--net", "bash", "-c", "ip link set lo up; exec bash -s"]


@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
    steps = list(commands(page))
    assert len(steps) >= 3
    scratch, home = tmp_path / "work", tmp_path / "home"
    scratch.mkdir()
    home.mkdir()
    script = "".join(f"{step.line}\nstatus=$?; echo; echo {MARK} $status\n" for step in steps)
    process = subprocess.run(
        shell(page),
        input=script,
        cwd=folder_of(page, scratch),
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    *outputs, rest = re.split(rf"\n{MARK} (\d+)\n", process.stdout)
    printed, statuses = outputs[::2], outputs[1::2]
    assert rest == "" and len(printed) == len(steps), process.stdout
    for step, output, status in zip(steps, printed, statuses, strict=True):
        assert status == "0", f"$ {step.line}\n{output}"
        assert step.matches(output), f"$ {step.line}\n{output}"


def test_every_tutorial_is_tested() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md")} - {"index"}
    tested_elsewhere = {
        name
        for name in pages - set(PAGES)
        for file in (ROOT / "tests" / "e2e").glob("test_*.py")
        if f"tutorials/{name}.md" in file.read_text()
    }
    assert pages - set(PAGES) == tested_elsewhere


def test_numbers_may_vary_only_where_the_page_says_so() -> None:
    assert Command("", "took 3.86 s of ...\n", varies=True).matches("took 12 s of everything\n")
    assert not Command("", "took 3.86 s\n", varies=True).matches("lost 3.86 s\n")
    assert not Command("", "took 3.86 s\n", varies=False).matches("took 12 s\n")
