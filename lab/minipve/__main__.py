"""The command ``minipve``, also as ``python -m minipve``."""

from minipve.cli import minipve


def main() -> None:
    """Run the command."""
    minipve(prog_name="minipve")


if __name__ == "__main__":
    main()
