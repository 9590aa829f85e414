"""Commands on terminals of any width."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

ON_TERMINAL = """
import fcntl, struct, sys, termios
for columns in {columns}:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    {code}
    print("@@")
"""


def on_terminals(*columns: int, argv: list[str]) -> list[str]:
    """Run a command in one process, on terminals of so many columns; return what it prints on each."""
    return code_on_terminals(
        *columns, code=f"import dasklab.cli; dasklab.cli.main({argv}, standalone_mode=False)"
    )


def code_on_terminals(*columns: int, code: str) -> list[str]:
    """Run a line of Python in one process, on terminals of so many columns; return what it prints on each."""
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    command = [sys.executable, "-c", ON_TERMINAL.format(columns=columns, code=code)]
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environment) as child:
        os.close(slave)
        printed = b""
        try:
            while part := os.read(master, 65536):
                printed += part
        except OSError:  # the terminal is closed
            pass
        os.close(master)
    assert child.returncode == 0, printed.decode()
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", printed.decode()).replace("\r\n", "\n").split("@@\n")[:-1]
