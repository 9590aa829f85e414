"""One lock per lab, held by every process that may be changing it.

Theory of operation
-------------------
A lab is identified by the things a command would change (``lock_files``), not by the inventory file, so two
inventories of the same lab ask for the same locks. Each lock is flock(2) on a small file. The lock of a state
folder lies beside the folder, and is the same for every user and every $HOME; it is not in the folder,
because `dasklab destroy` removes that. Other locks lie in the user's home. Users of different homes who share
a lab on a node see each other by ``dasklab.running.lock.note``.

Such a lock belongs to the open file, not to a process: a child that inherits the descriptor holds it too. The
driver passes its descriptors to ansible-playbook, whose workers are forks of it, so the lab stays locked
until the last worker has ended, even if the driver is killed. ``DASKLAB_LOCK`` lists the descriptors. A
playbook that inherits the lock does not take it again; a playbook started by hand takes it
(playbooks/callback_plugins/lab_lock.py).

If the process that took a lock is dead, only its orphaned children still hold it. Nobody waits for their
results any more, so the next command ends them and continues.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dasklab.errors import LabError

VARIABLE = "DASKLAB_LOCK"
COMMAND_CHARS = 100  # how much of the owner's command line a message quotes
PATIENCE_S = 10.0  # after a signal, before the next one


def lock_files(hosts: Sequence[str], value: Callable[[str, str], Any]) -> list[Path]:
    """Return the files whose locks a command needs before it changes a lab. Pure.

    Args:
        hosts: the hosts of the group ``lab``.
        value: returns the resolved variable of a host, or None if it has none.

    Returns:
        One file for the state folder, then one for the endpoint with the lab's tag, or one for each machine
        if no endpoint creates them. A local endpoint lives in the state folder and needs no file of its own.
    """
    first, files = hosts[0], []
    if folder := value(first, "lab_state_dir"):
        state = Path(folder).expanduser().resolve()
        files.append(state.with_name(f"{state.name}.lock"))
    if value(first, "endpoint_start"):
        return files
    if proxmox := value(first, "proxmox"):
        place = f"{proxmox.get('host')}:{proxmox.get('port', 8006)}"
        return [*files, _file_in_home(f"lab {value(first, 'lab_name')} of {place}")]
    machines = {f"machine {value(host, 'ansible_host') or host}" for host in hosts}
    return [*files, *map(_file_in_home, sorted(machines))]


class LabLock:
    """The locks of one lab: taken by this process, or inherited from its parent."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = list(files)
        self._taken: dict[Path, int] = {}
        self._inherited: dict[Path, int] = {}

    @property
    def descriptors(self) -> list[int]:
        """The file descriptors that keep the lab locked."""
        return [*self._inherited.values(), *self._taken.values()]

    def acquire(self) -> bool:
        """Take the locks that are not inherited.

        Returns:
            Whether orphans of a killed command had to be ended. The state of the lab is then unknown.

        Raises:
            LabError: another command is using the lab; the message quotes it.
        """
        self._inherited = _inherited(self._files)
        orphans_ended = False
        try:
            for file in self._files:
                if file not in self._inherited | self._taken:
                    orphans_ended |= self._take(file)
        except BaseException:
            self.release()
            raise
        return orphans_ended

    def release(self) -> None:
        """Release the locks that this process took. Children that inherited them keep holding them."""
        for file, descriptor in self._taken.items():
            if not holders(file):
                file.unlink(missing_ok=True)
            os.close(descriptor)
        self._taken.clear()

    def _take(self, file: Path) -> bool:
        orphans_ended, descriptor = False, _lock(file)
        if descriptor is None and _is_orphaned(file):
            orphans_ended = end_holders(file)
        if descriptor is None:
            descriptor = _lock(file)  # the holders may have ended while we looked at them
        if descriptor is None:
            pid, command = _owner(file)
            busy = f"another command is using this lab: {command} (process {pid})"
            raise LabError(busy, "wait until it ends, or stop it with Ctrl-C")
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {command_line()}\n".encode(), 0)
        self._taken[file] = descriptor
        return orphans_ended


@contextmanager
def lock_lab(files: Iterable[Path]) -> Iterator[bool]:
    """Lock a lab for this process and for the playbooks that it starts.

    Yields:
        Whether orphans of a killed command had to be ended. The state of the lab is then unknown.

    Raises:
        LabError: another command is using the lab; the message quotes it.
    """
    lock, before = LabLock(files), os.environ.get(VARIABLE)
    orphans_ended = lock.acquire()
    os.environ[VARIABLE] = ",".join(map(str, lock.descriptors))
    try:
        yield orphans_ended
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        lock.release()


def is_inherited(files: Iterable[Path]) -> bool:
    """Return whether the command that started this one has locked the lab."""
    return bool(_inherited(files))


def inheritable() -> list[int]:
    """Return the file descriptors that a playbook started now must inherit."""
    return [descriptor for descriptor in _listed() if _target(descriptor) is not None]


def end_heirs() -> bool:
    """End all other processes that hold this process's locks. Return whether there were any."""
    targets = [_target(descriptor) for descriptor in _listed()]
    outcomes = [end_holders(file) for file in targets if file is not None]
    return any(outcomes)


def _file_in_home(name: str) -> Path:
    """Return the lock file of a lab that has no place on this machine.

    The folder cannot be configured: commands with different settings must share it.
    """
    folder = (Path.home() / ".local" / "state" / "dasklab-locks").resolve()
    return folder / hashlib.sha256(name.encode()).hexdigest()[:16]


def _lock(file: Path) -> int | None:
    """Lock a file and return its descriptor; None if another process has locked it.

    Raises:
        LabError: the file cannot be opened, for instance because another user's command has created it.
    """
    import fcntl  # Windows has none, and prints the help of all commands

    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LabError(f"cannot lock this lab: {file}: {error.strerror}", _owner_hint(file)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _target(descriptor) == file:  # otherwise its last holder removed it between open and flock
            return descriptor
        os.close(descriptor)


def _inherited(files: Iterable[Path]) -> dict[Path, int]:
    """Return the lock files that are open in inherited descriptors. The variable may be stale, so check."""
    targets = {target: descriptor for descriptor in _listed() if (target := _target(descriptor))}
    return {file: targets[file] for file in files if file in targets}


def _listed() -> list[int]:
    return [int(word) for word in os.environ.get(VARIABLE, "").split(",") if word.isdigit()]


def _target(descriptor: int) -> Path | None:
    """Return the open file of a descriptor; None if the descriptor is closed or the file was removed."""
    try:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        return target if os.path.samestat(os.fstat(descriptor), target.stat()) else None
    except OSError:
        return None


def _owner_hint(file: Path) -> str:
    """Return what to do about a lock file that cannot be opened."""
    try:
        owner = file.stat().st_uid
    except OSError:
        return "choose a state folder in a folder that you may write to"
    return f"a command of another user (uid {owner}) may be using this lab; run this as that user"


def _is_orphaned(file: Path) -> bool:
    """Return whether the owner of a lock is dead, and only children that inherited the lock still hold it.

    Checks twice, because a new owner writes its PID into the file a moment after it took the lock.
    """
    for pause_s in (0.5, 0.0):
        heirs = holders(file)
        if not heirs or _owner(file)[0] in heirs | {os.getpid()}:
            return False
        time.sleep(pause_s)
    return True


def _owner(file: Path) -> tuple[int, str]:
    """Return the PID and the command line of the process that took the lock; PID 0 if it removed the file."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    pid, _, command = text.strip().partition(" ")
    return int(pid) if pid.isdigit() else 0, command or "a command that has just started"


def command_line() -> str:
    """Return this process's command, shortened, for messages."""
    line = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return line if len(line) <= COMMAND_CHARS else f"{line[:COMMAND_CHARS]}..."


def holders(file: Path) -> set[int]:
    """Return the PIDs of other processes that have the file open, as far as this user may see them."""
    pids: set[int] = set()
    try:
        status = file.stat()
    except FileNotFoundError:
        return pids
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if any(_is_same(link, status) for link in (process / "fd").iterdir()):
                pids.add(int(process.name))
    return pids - {os.getpid()}


def _is_same(link: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(link.stat(), status)
    except OSError:  # closed meanwhile
        return False


def end_holders(file: Path) -> bool:
    """End the other processes that have the file open, and their children. Return whether there were any."""
    any_ended = False
    for signum in (signal.SIGTERM, signal.SIGKILL):
        pids = holders(file)
        any_ended |= bool(pids)
        for pid in pids:
            _signal(pid, signum)
        deadline = time.monotonic() + PATIENCE_S
        while pids and (pids := holders(file)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if not pids:
            break
    return any_ended


def _signal(pid: int, signum: signal.Signals) -> None:
    """Signal a process. SIGKILL goes to its whole process group if it leads one, as Ansible's workers do."""
    with suppress(ProcessLookupError, PermissionError):
        if signum == signal.SIGKILL and os.getpgid(pid) == pid:
            os.killpg(pid, signum)
        else:
            os.kill(pid, signum)
