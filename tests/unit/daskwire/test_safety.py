from __future__ import annotations

from pathlib import Path

import daskwire
import pytest

MODULES = sorted(Path(daskwire.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_nothing_from_a_capture_is_unpickled(module: Path) -> None:
    assert "pickle.load" not in module.read_text()
