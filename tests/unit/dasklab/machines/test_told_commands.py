"""The commands that comments of the inventories and the README's word on Proxmox VE tell are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from dasklab.cli import main
from dasklab.machines.inventory import DEFAULT
from dasklab.paths import SHARE as ROOT

COMMAND = re.compile(r"\s*(?:\.venv/bin/)?dasklab ([^#\n]+)")


def told(path: Path) -> list[str]:
    """The words after ``dasklab`` wherever a comment or a fence tells a command line."""
    text = path.read_text()
    if path.suffix == ".yml":
        lines = [line.partition("#")[2] for line in text.splitlines()]
    else:
        section = text.partition("## Quick start on Proxmox VE")[2].partition("\n## ")[0]
        lines = [
            line
            for fence in re.findall(r"^```\n(.*?)^```", section, re.M | re.S)
            for line in fence.splitlines()
        ]
    return [match[1].strip() for line in lines if (match := COMMAND.match(line))]


FILES = [*DEFAULT.parent.rglob("*.yml"), ROOT / "README.md"]
CASES = [(path.relative_to(ROOT), words) for path in FILES for words in told(path)]


@pytest.mark.parametrize(("path", "words"), CASES, ids=[f"{p}: {w}" for p, w in CASES])
def test_a_command_that_is_told_is_understood(path: Path, words: str) -> None:
    parse(shlex.split(words))


def parse(words: list[str]) -> None:
    """Find the command and let it read its options, without running it or opening what they name."""
    context = click.Context(main)
    command = main.get_command(context, words[0])
    if command is None:
        raise click.UsageError(f"no command {words[0]!r}")
    command.make_parser(click.Context(command, parent=context)).parse_args(words[1:])


def test_there_is_something_told() -> None:
    assert (
        Path("inventory/examples/proxmox/hosts.yml"),
        "doctor -i inventory/examples/proxmox/hosts.yml",
    ) in CASES
    assert [words for path, words in CASES if path.name == "README.md"]


def test_a_wrong_command_is_found() -> None:
    for words in (["heal"], ["doctor", "--deep"]):
        with pytest.raises(click.UsageError):
            parse(words)
