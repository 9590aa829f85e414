"""Ctrl-C works in all tests as on a terminal.

A shell lets what it starts in the background ignore Ctrl-C, and all that is started from there inherits it.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
