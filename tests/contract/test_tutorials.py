"""The tutorials that need no lab work as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tutorials
from tests.tutorials import Command

PAGES = ("capture", "cluster", "proxmox")
WITH_A_LAB = ("lab", "what-if")  # tests/e2e/test_wheel.py, tests/e2e/test_twin.py


@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    tutorials.run(name, tmp_path, {}, timeout_s=500)


def test_every_tutorial_is_tested() -> None:
    pages = {path.stem for path in tutorials.FOLDER.glob("*.md")} - {"index"}
    assert pages == {*PAGES, *WITH_A_LAB}


def test_numbers_may_vary_only_where_the_page_says_so() -> None:
    assert Command("", "took 3.86 s of ...\n", varies=True).matches("took 12 s of everything\n")
    assert not Command("", "took 3.86 s\n", varies=True).matches("lost 3.86 s\n")
    assert not Command("", "took 3.86 s\n", varies=False).matches("took 12 s\n")
