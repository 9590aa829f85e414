"""Code that runs inside a container's file system."""

from __future__ import annotations

import importlib

import pytest
from minipve.guests.lxc import rootfs


def test_imports_are_refused_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootfs._thread, "is_inside", True, raising=False)
    with pytest.raises(ImportError, match="cannot be imported inside"):
        importlib.import_module("this_is_nowhere")
    monkeypatch.undo()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("this_is_nowhere")
