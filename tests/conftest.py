"""Settings of all tests: Ctrl-C works and leaves no process behind; hypothesis has no deadlines.

Programs that a shell starts in the background ignore Ctrl-C, and their children inherit that.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

from tests import guard

signal.signal(signal.SIGINT, signal.default_int_handler)
guard.start()
settings.register_profile("lab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lab")
