"""The command ``daskwire``, also started as ``python -m daskwire``."""

from __future__ import annotations

import gc
import os
import signal
import sys

COLLECT_EVERY = (100_000, 50, 50)  # a capture is millions of objects, of which none is in a cycle


def main() -> None:
    """Run the command. Ctrl-C during its imports, which take a second, ends it at once."""
    gc.set_threshold(*COLLECT_EVERY)
    python_handles_it = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_handles_it:
        signal.signal(signal.SIGINT, _stop)
    from daskwire.terminal.cli import exit_after_crash, wire

    sys.excepthook = exit_after_crash
    if python_handles_it:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    wire(prog_name="daskwire")


def _stop(*_: object) -> None:
    os.write(2, b"daskwire: stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
