"""The command ``minipve``, also started as ``python -m minipve``."""

from minipve.cli import minipve


def main() -> None:
    minipve(prog_name="minipve")


if __name__ == "__main__":
    main()
