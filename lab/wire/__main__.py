"""``python -m lab.wire``: the command without the rest of the toolkit."""

from lab.wire.cli import wire

wire(prog_name="wire")
