"""The arguments that all commands share: files, time span, node names, output; and files that they write."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import click

from daskwire.analysis.opening import open_capture
from daskwire.base.errors import ArgumentError, WireError
from daskwire.decoder.capture import Capture
from daskwire.decoder.file.reading import first_packet_ns
from daskwire.decoder.file.source import STDIN, Source, open_sources
from daskwire.decoder.net.packets.layers import GENEVE, VXLAN
from daskwire.terminal.printing import progress_bar, write_line

# Write binary output: a file as a whole, or standard output.

Produce = Callable[[IO[bytes]], int]


def write_file(path: Path, produce: Produce) -> int:
    """Write a file that appears when it is complete. Returns the result of ``produce``.

    Raises:
        WireError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with draft.open("xb") as stream:
            result = produce(stream)
        draft.replace(path)
    except OSError as error:
        raise WireError(f"{path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return result


def write_stdout(produce: Produce) -> None:
    """Write to standard output. A reader that closes it early ends the output.

    Raises:
        WireError: standard output is a terminal.
    """
    if sys.stdout.isatty():
        raise WireError("standard output is a terminal; pipe it into a program: ... -o - | wireshark -k -i -")
    try:
        produce(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()


def silence_stdout() -> None:
    """Discard what is still buffered for a reader that has left; Python would report that at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Install the Wireshark dissector `dask.lua`.

DISSECTOR = Path(__file__).parents[1] / "dask.lua"
_DEFAULT = Path(".local/lib/wireshark/plugins")  # below the home folder
_FOLDER = re.compile(r"^Personal Lua Plugins:\s*(\S.*)$", re.MULTILINE)


def install_dissector() -> Path:
    """Copy the dissector to the folder of personal plugins. Returns the copy.

    Raises:
        WireError: the folder cannot be written.
    """
    folder = _plugin_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(DISSECTOR, folder))
    except OSError as error:
        raise WireError(f"{folder}: {error.strerror}") from error


def _plugin_folder() -> Path:
    """Return the folder that tshark names; without tshark, Wireshark's default on Linux."""
    if (tshark := shutil.which("tshark")) is not None:
        command = [tshark, "-G", "folders"]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if match := _FOLDER.search(output):
            return Path(match[1])
    return Path.home() / _DEFAULT


# The arguments that all commands share: files, time span, node names, output format.

LONG_FILE = 200_000_000  # bytes from which a progress bar is shown
KINDS = (VXLAN, GENEVE)
ISO = "%Y-%m-%dT%H:%M:%S.%f"


@dataclass(frozen=True)
class Options:
    """The arguments of a command. ``limit``: number of rows to print, None for all."""

    files: tuple[Path, ...]
    since: str | None
    until: str | None
    node: tuple[str, ...]
    key_log: Path | None
    tunnel: tuple[str, ...]
    as_json: bool = False
    parquet: Path | None = None
    limit: int | None = None
    output: Path | None = None


_PATH = click.Path(path_type=Path)
_OUTPUT = (
    click.option(
        "--limit", type=click.IntRange(min=0), default=40, show_default=True,
        help="Number of rows to print; 0 prints all.",
    ),
    click.option("--parquet", type=_PATH, metavar="DIR", help="Write the table(s) as Parquet to DIR."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON with all rows."),
)  # fmt: skip
TUNNEL = click.option(
    "--tunnel", multiple=True, metavar="udp:PORT=KIND",
    help="Decode a tunnel on this port; KIND is vxlan or geneve. Repeatable.",
)  # fmt: skip
_CAPTURE = (
    click.option("--key-log", type=_PATH, help="Decrypt TLS with this key log (see SSLKEYLOGFILE)."),
    TUNNEL,
    click.option("--node", multiple=True, metavar="ADDRESS=NAME", help="Name a node. Repeatable."),
    click.option("--until", metavar="TIME", help="Ignore packets after TIME (see --since)."),
    click.option(
        "--since", metavar="TIME",
        help="Ignore packets before TIME: seconds after the first packet, or ISO 8601.",
    ),
    click.argument("files", nargs=-1, required=True, type=_PATH),
)  # fmt: skip


def arguments(command: Callable[[Options], None]) -> Callable[..., None]:
    """Add the arguments of a command that prints a table."""
    return _decorated(command, (*_OUTPUT, *_CAPTURE))


def capture_arguments(command: Callable[[Options], None]) -> Callable[..., None]:
    """Add the arguments that select a capture and what is read of it."""
    return _decorated(command, _CAPTURE)


def _decorated(command: Callable[[Options], None], decorators: Iterable[Any]) -> Callable[..., None]:
    def run(**options: Any) -> None:
        command(Options(**options | {"limit": options.get("limit") or None}))

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(command.__dict__)  # options of this command only
    for decorate in decorators:
        run = decorate(run)
    return run


def open_files(options: Options) -> Capture:
    """Open the capture, and print warnings about its files.

    Raises:
        WireError: a file cannot be read.
        ArgumentError: an argument is invalid.
    """
    if any(file.is_fifo() or str(file) == STDIN for file in options.files) and sys.stderr.isatty():
        write_line("reading a pipe until it ends; Ctrl-C ends the recording", err=True)
    sources = open_sources(options.files)
    begin = first_packet_ns(sources) if options.since or options.until else 0
    capture = _open(options, sources, begin)
    if begin > capture.tally.begin_ns:  # the earliest packet is not the first of a file
        capture = _open(options, sources, capture.tally.begin_ns)
    for file in capture.files:
        for problem in file.problems():
            write_line(f"warning: {file.path}: {problem}", err=True)
    if not capture.tally.packets and capture.tally.end_ns:
        extent = _extent(capture)
        write_line(f"warning: no packet in this time span; the capture covers {extent}", err=True)
    return capture


def _open(options: Options, sources: list[Source], begin: int) -> Capture:
    since, until = _time_ns(options.since, begin), _time_ns(options.until, begin)
    if since is not None and until is not None and since >= until:
        raise ArgumentError(f"--since {options.since} is not before --until {options.until}")
    names = dict(_pair(text) for text in options.node)
    key_log = _read(options.key_log)
    with progress_bar(sum(len(source.view) for source in sources) >= LONG_FILE) as bar:
        task = bar.add_task("reading", total=1.0)
        return open_capture(
            sources,
            since_ns=since,
            until_ns=until,
            names=names,
            key_log=key_log,
            tunnel_ports=tunnel_ports(options.tunnel),
            report=lambda share: bar.update(task, completed=share),
        )


def _extent(capture: Capture) -> str:
    tally = capture.tally
    begin, end = (datetime.fromtimestamp(ns / 1e9) for ns in (tally.begin_ns, tally.end_ns))
    return f"0 to {(tally.end_ns - tally.begin_ns) / 1e9:.6f} s ({begin:{ISO}} to {end:{ISO}})"


def _pair(text: str) -> tuple[str, str]:
    address, equals, name = text.partition("=")
    if not address or not equals or not name:
        raise ArgumentError(f"--node {text}: expected ADDRESS=NAME, as in 10.0.0.1=scheduler")
    return address, name


def tunnel_ports(texts: Iterable[str]) -> dict[int, str]:
    """Parse the option --tunnel: UDP port -> kind of tunnel.

    Raises:
        ArgumentError: one of them is invalid.
    """
    return dict(map(_tunnel_port, texts))


def _tunnel_port(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"udp:(\d{1,5})=(\w+)", text)
    if not match or match[2] not in KINDS or int(match[1]) > 65535:
        raise ArgumentError(
            f"--tunnel {text}: expected udp:PORT=KIND with KIND {' or '.join(KINDS)}, as in udp:4790=vxlan"
        )
    return int(match[1]), match[2]


def _read(key_log: Path | None) -> str | None:
    try:
        return key_log.read_text("ascii", "replace") if key_log else None
    except OSError as error:
        raise WireError(f"{key_log}: {error.strerror}") from error


def _time_ns(text: str | None, begin_ns: int) -> int | None:
    """Parse seconds after the first packet, or an ISO 8601 time (local without a zone)."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return _iso_ns(text)
    if not math.isfinite(seconds) or abs(seconds) > 1e10:
        raise ArgumentError(f"{text!r} is not a number of seconds after the first packet")
    return begin_ns + round(seconds * 1e9)


def _iso_ns(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e9)  # for Python 3.10
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{text!r} is neither seconds after the first packet nor a time like 2026-11-21T05:00:00"
        ) from None
