"""``dasklab wire``: the program daskwire."""

from __future__ import annotations

import sys

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def wire(arguments: tuple[str, ...]) -> None:
    """Decode a packet capture of any Dask cluster (daskwire).

    All arguments go to daskwire: dasklab wire capture.pcap, dasklab wire --help.
    """
    from daskwire.terminal.cli import exit_after_crash
    from daskwire.terminal.cli import wire as daskwire

    sys.excepthook = exit_after_crash
    daskwire(list(arguments), prog_name="dasklab wire")
