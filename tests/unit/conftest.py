"""Unit tests know no lab: none that stands on this machine, none that the environment names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DASKLAB_STATE", "MINIPVE_STATE"):
            patch.setenv(name, str(tmp_path_factory.mktemp("state")))
        for name in ("DASKLAB_INVENTORY", "DASKLAB_RESULTS"):
            patch.delenv(name, raising=False)
        yield
