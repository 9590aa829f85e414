"""``python -m lab`` is ``dasklab``."""

from dasklab.cli import main

main()
