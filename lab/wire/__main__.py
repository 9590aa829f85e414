"""``python -m lab.wire``: the command without the rest of the toolkit."""

from lab.wire.terminal.cli import wire

wire(prog_name="wire")
