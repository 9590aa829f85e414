"""A console whose encoding lacks a character gets an escape in its place."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from daskwire.terminal.cli import wire
from daskwire.terminal.printing import write_line

@wire.command()
def greet():
    write_line("gr\\u00f6\\u00dfe-\\u65e5")

wire(["greet"])
"""


def test_a_character_that_the_console_lacks_is_escaped() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
    assert output.decode("cp1252").strip() == "größe-\\u65e5"
