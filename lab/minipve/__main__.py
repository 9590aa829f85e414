"""The command ``minipve``, also started as ``python -m minipve``."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command. Ctrl-C during its imports, which take a second, ends it at once."""
    python_handles_it = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_handles_it:
        signal.signal(signal.SIGINT, _stop)
    from minipve.endpoint.cli import minipve

    if python_handles_it:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    minipve(prog_name="minipve")


def _stop(*_: object) -> None:
    os.write(2, b"minipve: stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
