"""One lock per lab, held by every process that may be changing it.

Theory of operation
-------------------
A lab is identified by what would be changed and not by the file that describes it (``lock_names``), so a
second inventory of the same lab asks for the same locks. Each lock is flock(2) on a small file in the
user's state folder.

Such a lock belongs to the open file, not to a process: whoever inherits the descriptor holds it too. The
driver passes its descriptors to ansible-playbook, whose workers are forks of it, so the lab stays locked
until the last of them has ended, even if the driver is killed. ``DASKLAB_LOCK`` lists the descriptors. A
playbook that finds the lock's file behind one of them need not take the lock; one that was started by hand
takes it (playbooks/callback_plugins/lab_lock.py).

A lock whose taker is dead is held by the processes that it left behind. Nobody waits for their results any
more, so the next command ends them and goes on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dasklab.errors import LabError
from dasklab.running.holders import end_holders, holders

VARIABLE = "DASKLAB_LOCK"
COMMAND_CHARS = 100  # of the taker's command line, where a message quotes it


def lock_names(hosts: Sequence[str], value: Callable[[str, str], Any]) -> list[str]:
    """Return what identifies a lab, one lock each (pure).

    Args:
        hosts: the hosts of the group ``lab``.
        value: returns the resolved variable of a host, None where it has none.

    Returns:
        The state folder; then the endpoint with the lab's tag, or the machines where no endpoint makes
        them. An endpoint that the lab starts itself lives in the state folder and needs no lock of its own.
    """
    first, names = hosts[0], []
    if folder := value(first, "lab_state_dir"):
        names.append(f"state folder {Path(folder).expanduser().resolve()}")
    if value(first, "endpoint_start"):
        return names
    if proxmox := value(first, "proxmox"):
        return [
            *names,
            f"lab {value(first, 'lab_name')} of {proxmox.get('host')}:{proxmox.get('port', 8006)}",
        ]
    return [*names, *sorted({f"machine {value(host, 'ansible_host') or host}" for host in hosts})]


class LabLock:
    """The locks of one lab: taken by this process, or inherited from the one that started it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._files = [_folder() / hashlib.sha256(name.encode()).hexdigest()[:16] for name in names]
        self._taken: dict[Path, int] = {}
        self._inherited: dict[Path, int] = {}

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that keep the lab locked."""
        return [*self._inherited.values(), *self._taken.values()]

    def acquire(self) -> bool:
        """Take the locks that are not inherited.

        Returns:
            True if a killed command had left processes behind, which were ended: the lab is in any state.

        Raises:
            LabError: another command is at work on the lab; it is named.
        """
        self._inherited = _inherited(self._files)
        ended = False
        try:
            for file in self._files:
                if file not in self._inherited | self._taken:
                    ended |= self._take(file)
        except BaseException:
            self.release()
            raise
        return ended

    def release(self) -> None:
        """Give back what this process took. A process that inherited it goes on holding it."""
        for file, descriptor in self._taken.items():
            if not holders(file):
                file.unlink(missing_ok=True)
            os.close(descriptor)
        self._taken.clear()

    def _take(self, file: Path) -> bool:
        ended, descriptor = False, _lock(file)
        if descriptor is None and _left_behind(file):
            ended, descriptor = end_holders(file), _lock(file)
        if descriptor is None:
            taker, command = _taker(file)
            busy = f"another command is at work on this lab: {command} (process {taker})"
            raise LabError(busy, "wait for it, or end it by Ctrl-C")
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {_command_line()}\n".encode(), 0)
        self._taken[file] = descriptor
        return ended


@contextmanager
def lock_lab(names: Iterable[str]) -> Iterator[bool]:
    """Lock a lab for this process and for the playbooks that it starts.

    Yields:
        True if a killed command had left processes behind, which were ended: the lab is in any state.

    Raises:
        LabError: another command is at work on the lab; it is named.
    """
    lock, before = LabLock(names), os.environ.get(VARIABLE)
    ended = lock.acquire()
    os.environ[VARIABLE] = ",".join(map(str, lock.descriptors))
    try:
        yield ended
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        lock.release()


def inheritable() -> list[int]:
    """Return the descriptors that a playbook must inherit which is started now."""
    return [descriptor for descriptor in _listed() if _target(descriptor) is not None]


def end_heirs() -> bool:
    """End all other processes that hold this process's locks; True if there were any."""
    targets = [_target(descriptor) for descriptor in _listed()]
    ended = [end_holders(file) for file in targets if file is not None]
    return any(ended)


def _folder() -> Path:
    """Where locks are. Not configurable: two commands with different settings must find the same ones."""
    folder = Path.home() / ".local" / "state" / "dasklab-locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _lock(file: Path) -> int | None:
    """Lock a file; None if somebody else has it."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _target(descriptor) == file:  # else its last holder removed it between our two calls
            return descriptor
        os.close(descriptor)


def _inherited(files: Iterable[Path]) -> dict[Path, int]:
    """The files behind descriptors of our parent's. Its list may be older than we are, so it is checked."""
    targets = {target: descriptor for descriptor in _listed() if (target := _target(descriptor))}
    return {file: targets[file] for file in files if file in targets}


def _listed() -> list[int]:
    return [int(word) for word in os.environ.get(VARIABLE, "").split(",") if word.isdigit()]


def _target(descriptor: int) -> Path | None:
    """The file that is open; None if none is, or if it was removed."""
    try:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        return target if os.path.samestat(os.fstat(descriptor), target.stat()) else None
    except OSError:
        return None


def _left_behind(file: Path) -> bool:
    """Whether those who hold the file inherited it, and the one that took it is dead.

    Looks twice: the file names the taker before until a new one has written its own name, at once after it
    locked.
    """
    for pause_s in (0.5, 0.0):
        heirs = holders(file)
        if not heirs or _taker(file)[0] in heirs | {os.getpid()}:
            return False
        time.sleep(pause_s)
    return True


def _taker(file: Path) -> tuple[int, str]:
    """Who took the lock: its process and its command line."""
    pid, _, command = file.read_text().strip().partition(" ")
    return int(pid) if pid.isdigit() else 0, command or "a command that has just started"


def _command_line() -> str:
    line = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return line if len(line) <= COMMAND_CHARS else f"{line[:COMMAND_CHARS]}..."
