"""Ctrl-C works in all tests as on a terminal; no test fails because the machine is busy; whose turn it is.

A shell lets what it starts in the background ignore Ctrl-C, and all that is started from there inherits it.

Where tests run side by side (`make test`), those of a module stay together, because they share an endpoint;
the end-to-end tests, each of which wants the machine for itself, come one by one when the rest is done.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("lab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = item.nodeid.partition("::")[0]
        together = "tests/e2e" if module.startswith("tests/e2e/") else module
        item.add_marker(pytest.mark.xdist_group(together))
