"""`requirements.lock` fits `pyproject.toml` on each Python that dasklab supports, and has hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PYTHONS = ("3.10.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")  # 3.11.2 is Debian 12's


@pytest.fixture(scope="module")
def entries() -> list[list[str]]:
    """Entries of the lock file: its requirement, then its options."""
    text = re.sub("^#.*\n", "", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    return [[word.strip() for word in entry.split("\\\n")] for entry in re.split(r"\n(?=\w)", text.strip())]


def declared(extra: str, python: Mapping[str, str]) -> Iterator[Requirement]:
    """Yield what an extra of dasklab installs from other projects on this Python."""
    for line in metadata.requires("dasklab") or ():
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate({**python, "extra": extra}):
            continue
        if wanted.name == "dasklab":
            for other in wanted.extras:
                yield from declared(other, python)
        else:
            yield wanted


@pytest.mark.parametrize("version", PYTHONS)
def test_each_requirement_has_one_version_that_fits(entries: list[list[str]], version: str) -> None:
    python = {"python_full_version": version, "python_version": version.rpartition(".")[0]}
    locked: dict[str, str] = {}
    for pin in (Requirement(line) for line, *_ in entries):
        if pin.marker is None or pin.marker.evaluate(python):
            assert pin.name not in locked
            locked[pin.name] = str(pin.specifier).removeprefix("==")
    wanted = {canonicalize_name(one.name): one.specifier for one in declared("dev", python)}
    assert len(wanted) > 40
    outside = {
        name: str(allowed) for name, allowed in wanted.items() if not allowed.contains(locked.get(name, "0"))
    }
    assert outside == {}, "to mend it: make lock"


def test_each_entry_has_hashes_and_nothing_else(entries: list[list[str]]) -> None:
    """No index, no address and no path: whoever installs chooses where from, and gets what was locked."""
    for line, *options in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; [\w.*<>=!' ()]+)?", line)
        assert options and all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", option) for option in options)


def test_make_installs_nothing_that_is_not_in_the_lock_file() -> None:
    lines = re.findall("^\t.*(?:pip|UV[)]) install .*", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(lines) == 3
    checked = re.compile("--require-hashes -r|--no-deps --no-build-isolation -e [.]$")
    assert [line for line in lines if not checked.search(line)] == []
