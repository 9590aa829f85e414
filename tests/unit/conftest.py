"""Unit tests use no lab: neither one that runs on this machine nor one that the environment names.

Nor do they use the user's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module", autouse=True)
def _no_lab(_empty_folder: Path) -> Iterator[None]:
    """Point the environment to a lab that does not exist.

    Only while a unit test runs: the same process may run contract tests afterwards.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DASKLAB_STATE", "DASKLAB_CACHE", "MINIPVE_STATE"):
            patch.setenv(name, str(_empty_folder / name.lower()))
        for name in ("DASKLAB_INVENTORY", "DASKLAB_RESULTS"):
            patch.delenv(name, raising=False)
        yield
