"""Pending changes of a container's configuration."""

from __future__ import annotations

from minipve.config.rules.schema import LXC
from minipve.config.store import GuestConfig
from minipve.guests.container import options


def test_pending_changes_can_be_reverted() -> None:
    config = GuestConfig({"memory": "512", "hostname": "a"}, {"hostname": "x"}, kind=LXC)
    options.stage(config, {"hostname": "b", "memory": "512"}, ["nameserver"], [])
    assert (config.pending, config.deleted) == ({"hostname": "b"}, [])
    options.stage(config, {}, ["hostname"], [])
    assert (config.pending, config.deleted) == ({}, ["hostname"])
    options.stage(config, {}, [], ["hostname"])
    assert (config.pending, config.deleted) == ({}, [])
