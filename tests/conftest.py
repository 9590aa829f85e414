"""Ctrl-C works in all tests as on a terminal and leaves nothing; no test fails because the machine is busy.

A shell lets what it starts in the background ignore Ctrl-C, and all that is started from there inherits it.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

from tests import guard

signal.signal(signal.SIGINT, signal.default_int_handler)
guard.start()
settings.register_profile("lab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lab")
