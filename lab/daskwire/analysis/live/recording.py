"""Record an interface or a pipe into an unnamed temporary file, and keep its last seconds."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from daskwire.base.arrays import Ints
from daskwire.base.errors import WireError
from daskwire.decoder.file import pcap, tcpdump
from daskwire.decoder.file.pcapng_writer import PcapngWriter
from daskwire.decoder.file.reading import read_blocks
from daskwire.decoder.file.records import Progress, Records

# Record a network interface with tcpdump.

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


# Store a pipe or a growing file in an unnamed temporary file.
#
# Only the part that is still needed occupies disk space.

CHUNK = 1 << 20  # bytes read at a time
HEADER = 1 << 16  # bytes that are kept: they contain the header of the capture
GROWTH_S = 0.1  # a growing file is read again after so long
PIPE_END_GRACE_S = 1.0  # the thread needs it to notice that the pipe has ended
KEEP_SIZE, PUNCH_HOLE = 1, 2  # flags of fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)


class ReplacedError(Exception):
    """A growing file became shorter."""


class Recording:
    """Copies a pipe or a growing file in a thread of its own: the writer does not wait for the decoder.

    Attributes:
        name: of the source, for messages.
        path: the file.
        ended: set when the writer has closed the pipe, or after ``stop``.
        error: why the copy ended early, None if it did not.
    """

    def __init__(self, pipe: IO[bytes], name: str, grows: bool = False) -> None:
        """Start copying.

        Args:
            pipe: what to copy.
            name: its name, for messages.
            grows: it is a file to which another program appends; its end is not the end of the recording.
        """
        self.name = name
        self._grows = grows
        self._stopped = threading.Event()
        self._pipe = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as this object
        self._forgotten = HEADER
        self.path = Path(f"/proc/self/fd/{self._file.fileno()}")
        self.ended = threading.Event()
        self.error: str | None = None
        threading.Thread(target=self._copy, daemon=True).start()

    def _copy(self) -> None:
        try:
            with self._pipe:
                while part := self._pipe.read(CHUNK) or self._growth():
                    self._file.write(part)
        except ReplacedError:
            self.error = f"{self.name}: became shorter; was it replaced by another file?"
        except OSError as error:
            self.error = f"{tempfile.gettempdir()}: {error.strerror}"
        finally:
            self.ended.set()

    def _growth(self) -> bytes:
        """Wait until a growing file has more bytes. Return none at the end of a pipe, and after ``stop``."""
        is_last = not self._grows
        while not is_last:
            is_last = self._stopped.wait(GROWTH_S)
            if part := self._pipe.read(CHUNK):
                return part
            if os.fstat(self._pipe.fileno()).st_size < self._pipe.tell():
                raise ReplacedError
        return b""

    def stop(self) -> None:
        """End at the current end of a growing file. A pipe ends when its writer closes it."""
        self._stopped.set()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.ended.wait(PIPE_END_GRACE_S):  # else the thread still writes; the program is about to end
            self._file.close()

    def forget(self, before: int) -> None:
        """Free the disk space of the bytes below a position, whole pages only."""
        end = before - before % mmap.PAGESIZE
        if end <= self._forgotten:
            return
        _libc.fallocate(
            self._file.fileno(),
            KEEP_SIZE | PUNCH_HOLE,
            ctypes.c_int64(self._forgotten),
            ctypes.c_int64(end - self._forgotten),
        )  # where the file system cannot do this, the file only stays larger
        self._forgotten = end

    @property
    def stored(self) -> int:
        """Bytes that the file occupies."""
        return os.fstat(self._file.fileno()).st_blocks * 512


# The last seconds of a recording, without the payload of large messages: problems are found without it.

MAX_WINDOW_BYTES = 32 << 20
HEAD_BYTES = 512  # what is kept of each packet if too many are not decoded yet


@dataclass(frozen=True)
class Payload:
    """Where payload is that nobody reads: positions in the file in ascending order, and bytes."""

    start: Ints
    size: Ints

    def sizes_without(self, records: Records) -> Ints:
        """Return how many bytes of each packet come before such payload, which ends with the packet."""
        captured = records.captured.astype(np.int64)
        if not len(self.start):
            return captured
        index = np.minimum(np.searchsorted(self.start, records.offset), len(self.start) - 1)
        before = self.start[index] - records.offset
        is_tail = (before >= 0) & (before < captured) & (before + self.size[index] >= captured)
        return np.where(is_tail, before, captured)


NOTHING = Payload(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Window:
    """Copies the packets of a recording once they are decoded, and forgets the oldest ones.

    Attributes:
        begin_s: when its first packets were recorded, on the clock of ``add``.
        position: how far the recording was copied, bytes.
    """

    def __init__(self, name: str, begin_s: float) -> None:
        self._name = name
        self._progress = Progress()
        self._head = io.BytesIO()
        self._writer = PcapngWriter(self._head)
        self._interfaces: dict[tuple[int, int], int] = {}
        self._parts: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self.begin_s = begin_s

    @property
    def position(self) -> int:
        return self._progress.position

    def add(self, view: memoryview, payload: Payload, begin_s: float) -> None:
        """Copy the packets up to the end of ``view`` that were recorded since ``begin_s``."""
        part = self._copy(view, self._progress, payload)
        self._parts.append((begin_s, part))
        self._bytes += len(part)

    def forget(self, before_s: float) -> None:
        """Forget what was recorded before a time, and more if the window is too large."""
        while len(self._parts) > 1 and (self._parts[1][0] <= before_s or self._bytes > MAX_WINDOW_BYTES):
            self._bytes -= len(self._parts.popleft()[1])
            self.begin_s = self._parts[0][0]

    def capture(self, view: memoryview) -> bytes:
        """Return a capture of the window and of the packets in ``view`` that were not copied yet."""
        progress = Progress(position=self._progress.position, section=self._progress.section)
        longest = HEAD_BYTES if len(view) - progress.position > MAX_WINDOW_BYTES else len(view)
        rest = self._copy(view, progress, NOTHING, longest)
        return b"".join([self._head.getvalue(), *(part for _, part in self._parts), rest])

    def _copy(self, view: memoryview, progress: Progress, payload: Payload, longest: int = 1 << 62) -> bytes:
        """Return packets as blocks of pcapng; their interfaces are described in the head."""
        result = io.BytesIO()
        if len(view) <= pcap.HEADER:
            return b""  # no packet yet
        for records in read_blocks(self._name, view, progress):
            key = records.link, records.interface
            if key not in self._interfaces:
                self._interfaces[key] = self._writer.interface(records.link, f"{records.interface}")
            sizes = np.minimum(payload.sizes_without(records), longest)
            columns = (records.time_ns, records.offset, sizes, records.length)
            for time_ns, offset, size, length in zip(*(column.tolist() for column in columns), strict=True):
                data = view[offset : offset + size]
                self._writer.packet(self._interfaces[key], time_ns, data, length, (), result)
        return result.getvalue()
