"""``python -m dasklab``: the command ``dasklab``."""

from dasklab.cli import main

if __name__ == "__main__":
    main(prog_name="dasklab")
