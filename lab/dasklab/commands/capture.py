"""``dasklab capture``: the frames of one host, live in the terminal, in a file, or in a pipe."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import click

from dasklab.console.completion import complete_hosts
from dasklab.console.lab.guest_program import call, failure
from dasklab.console.options import inventory_option
from dasklab.console.path_types import OutputFile
from dasklab.console.quantity import TIME_TO_LIVE
from dasklab.machines import ssh
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.variables import open_lab

STDOUT = "-"
TIME_IS_UP = 124  # exit status of timeout
# tcpdump ends when its time is up, or when our end of the connection closes: then `cat` ends and stops it.
SCRIPT = """exec 3<&0
timeout {seconds:g} tcpdump {options} & child=$!
{{ cat <&3; kill -TERM $child; }} >/dev/null 2>&1 &
wait $child"""


@click.command()
@click.argument("host", shell_complete=complete_hosts)
@click.argument("expression", metavar="[FILTER]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-w",
    "output",
    metavar="FILE|-",
    help="Write a capture file, or to standard output, instead of lines of text.",
)
@click.option("--interface", help="Interface on HOST. Default: the link under test.")
@click.option("--snaplen", type=click.IntRange(min=1), help="Bytes to keep of each frame. Default: all.")
@click.option(
    "--for",
    "seconds",
    type=TIME_TO_LIVE,
    default=3600.0,
    show_default="1h",
    help="Time after which the capture ends; Ctrl-C ends it, too.",
)
@inventory_option
def capture(
    host: str,
    expression: tuple[str, ...],
    output: str | None,
    interface: str | None,
    snaplen: int | None,
    seconds: float,
    inventory: Path,
) -> None:
    """Capture the frames of HOST with tcpdump. FILTER is in tcpdump's language.

    The bridge stays as it is: HOST sees its own frames only. An experiment with `capture: true` records the
    frames of all hosts.

    \b
    dasklab capture worker-1 -- tcp port 8786
    dasklab capture worker-1 -w worker-1.pcap --for 1min
    dasklab capture worker-1 -w - | daskwire -
    """
    if output == STDOUT and sys.stdout.isatty():
        raise click.UsageError(
            "a capture is not for a terminal; use a pipe, or leave -w out for lines of text"
        )
    file = None if output in (None, STDOUT) else OutputFile().convert(output, None, None)
    lab = open_lab(inventory)
    presence.require_machines(lab, host)
    device = interface or str(call(lab, host, "link", "show")["interface"])
    options = ["-n", "-i", device, *(["-s", str(snaplen)] if snaplen else [])]
    options += ["-U", "-w", STDOUT] if output else ["-l"]
    options += [" ".join(expression)] if expression else []
    with file.open("wb") if file else nullcontext() as stream:
        status = _run(lab, host, SCRIPT.format(seconds=seconds, options=shlex.join(options)), stream)
    if status not in (0, TIME_IS_UP):
        raise failure(host, status, "the message above says why")


def _run(lab: Inventory, host: str, script: str, stream: IO[Any] | None) -> int:
    """Run a script on a host until it ends or Ctrl-C; return its exit status, 0 after Ctrl-C.

    ssh is in a session of its own, so that Ctrl-C does not cut off what is still on its way to us.
    """
    argv = [*ssh.command(lab, host), script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=stream, start_new_session=True) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.communicate()  # closes its standard input
            return 0
