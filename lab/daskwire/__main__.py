"""Run the command with ``python -m daskwire``."""

from daskwire.terminal.cli import wire


def main() -> None:
    wire(prog_name="daskwire")


if __name__ == "__main__":
    main()
