"""``python -m lab`` is ``dasklab``."""

from lab.cli import main

main()
