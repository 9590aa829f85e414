"""Store a pipe or a growing file in an unnamed temporary file.

Only the part that is still needed occupies disk space.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading
from pathlib import Path
from typing import IO

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
