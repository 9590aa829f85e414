"""The command ``daskwire``, also as ``python -m daskwire``."""

from daskwire.terminal.cli import wire


def main() -> None:
    """Run the command."""
    wire(prog_name="daskwire")


if __name__ == "__main__":
    main()
