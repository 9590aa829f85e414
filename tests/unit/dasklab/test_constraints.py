"""The pins of `constraints.txt` exist for the Python of the oldest system that `make lab` builds on."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

requirements = pytest.importorskip("packaging.requirements")
specifiers = pytest.importorskip("packaging.specifiers")

CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"
OLDEST = "3.11.2"  # Debian 12


def test_every_pin_holds_for_the_oldest_python() -> None:
    """Otherwise pip refuses to install anything there."""
    refused, lines = [], CONSTRAINTS.read_text().splitlines()
    for line in lines:
        pin = requirements.Requirement(line)
        if pin.marker and not pin.marker.evaluate({"python_full_version": OLDEST, "python_version": "3.11"}):
            continue
        try:
            required = metadata.metadata(pin.name).get("Requires-Python") or ""
        except metadata.PackageNotFoundError:  # what another system or Python needs
            continue
        if not specifiers.SpecifierSet(required).contains(OLDEST):
            refused.append(f"{line} needs Python {required}")
    assert len(lines) > 100
    assert refused == []
