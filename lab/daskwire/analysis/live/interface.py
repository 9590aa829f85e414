"""Record a network interface with tcpdump."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
from typing import IO

from daskwire.base.errors import WireError
from daskwire.decoder.file import tcpdump

DROPPED = re.compile(r"(\d+) packets? dropped by kernel")
LISTENING = re.compile(r"\blistening on ")  # printed after its signal handlers are set


class Tcpdump:
    """A running tcpdump that writes the packets of an interface to a pipe.

    Args:
        interface: its name.
        snaplen_bytes: how much of each packet it records, 0 for all.

    Attributes:
        output: the pipe.
        dropped: packets that the kernel has dropped so far.
    """

    def __init__(self, interface: str, snaplen_bytes: int = tcpdump.SNAPLEN_BYTES) -> None:
        options = tcpdump.options(snaplen_bytes)
        words = ["tcpdump", "-i", interface, *options, "-U", "-n", "-w", "-", tcpdump.FILTER]
        try:
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except FileNotFoundError:
            raise WireError("recording an interface needs tcpdump; or pipe a capture into it") from None
        assert self._process.stdout is not None and self._process.stderr is not None
        self.output: IO[bytes] = self._process.stdout
        self.dropped = 0
        self._messages: list[str] = []
        self._listens = False
        self._reader = threading.Thread(target=self._read_messages, args=[self._process.stderr], daemon=True)
        self._reader.start()

    def _read_messages(self, stream: IO[bytes]) -> None:
        for raw in stream:
            line = raw.decode("utf-8", "replace").strip()
            self._listens = self._listens or LISTENING.search(line) is not None
            if match := DROPPED.search(line):
                self.dropped = int(match[1])
            self._messages.append(line)
            del self._messages[:-20]

    def ask(self) -> None:
        """Let it report how many packets were dropped. Before it listens, the signal would end it."""
        if self._listens and self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """End it, after it has written its last packets."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    @property
    def failure(self) -> str | None:
        """Why it could not record; None while it runs, and if it was stopped."""
        if self._process.poll() in (None, 0):
            return None
        self._reader.join(timeout=1.0)  # its last words may still be in the pipe
        errors = [line for line in self._messages if line.startswith("tcpdump:")]
        return errors[-1] if errors else "tcpdump failed"


def is_interface(name: str) -> bool:
    """Return whether the network namespace has such an interface. /sys may show those of another one."""
    return name == "any" or name in {own for _, own in socket.if_nameindex()}
