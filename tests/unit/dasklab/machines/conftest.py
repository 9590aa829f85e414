"""Repeat lost reads without pauses."""

from __future__ import annotations

import pytest
from dasklab.machines.endpoint import proxmox


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxmox, "PAUSES_S", (0.0,) * len(proxmox.PAUSES_S))
