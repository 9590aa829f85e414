"""``python -m daskwire``: the command without the rest of the toolkit."""

from daskwire.terminal.cli import wire

wire(prog_name="wire")
