"""Pending changes as the API shows them."""

from __future__ import annotations

from minipve.config import values
from minipve.config.store import GuestConfig


def test_pending_rows() -> None:
    config = GuestConfig(
        {"cores": "1", "cipassword": "x", "onboot": "1"}, {"cores": "2", "memory": "64"}, ["onboot"]
    )
    rows = {str(row.pop("key")): row for row in values.rows(config)}
    assert rows["cores"] == {"value": 1, "pending": 2}
    assert rows["memory"] == {"pending": "64"}
    assert rows["onboot"] == {"value": 1, "delete": 1}
    assert rows["cipassword"] == {"value": "**********"}
    assert rows["digest"] == {"value": config.digest}
