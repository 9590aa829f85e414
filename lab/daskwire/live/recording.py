"""Store a pipe in an unnamed temporary file. Only the part that is still needed occupies disk space."""

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
GRACE_S = 1.0  # for the thread to notice that the pipe has ended
KEEP_SIZE, PUNCH_HOLE = 1, 2  # flags of fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)


class Recording:
    """Copies a pipe to a file in a thread of its own, so that the writer does not wait for the decoder.

    Attributes:
        name: of the source, for messages.
        path: the file.
        ended: set when the writer has closed the pipe.
        error: why the copy ended early, None if it did not.
    """

    def __init__(self, pipe: IO[bytes], name: str) -> None:
        self.name = name
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
                while part := self._pipe.read(CHUNK):
                    self._file.write(part)
        except OSError as error:
            self.error = f"{tempfile.gettempdir()}: {error.strerror}"
        finally:
            self.ended.set()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        if self.ended.wait(GRACE_S):  # else the thread still writes; the program is about to end
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
