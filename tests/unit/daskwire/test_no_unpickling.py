from __future__ import annotations

from pathlib import Path

import daskwire
import pytest

MODULES = sorted(Path(daskwire.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_module_does_not_unpickle(module: Path) -> None:
    assert "pickle.load" not in module.read_text()
