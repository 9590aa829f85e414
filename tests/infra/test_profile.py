"""Role profile: profiles of running Python services, by py-spy."""

from __future__ import annotations

from typing import Any

testinfra_hosts = ["ansible://lab"]


def test_nothing_is_sampled_by_the_installation_alone(host: Any) -> None:
    assert host.process.filter(comm="py-spy") == []
