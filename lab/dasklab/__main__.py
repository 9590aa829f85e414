"""The command ``dasklab``, also as ``python -m dasklab``."""

from dasklab.cli import main

if __name__ == "__main__":
    main(prog_name="dasklab")
