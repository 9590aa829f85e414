"""The lock of a lab on a node for users who share nothing but the node: a note in a guest's description.

Theory of operation
-------------------
The note stands in the description of the lab's first guest. It is written with the digest of the
configuration that was read before. Proxmox VE refuses a write if the configuration has changed meanwhile:
one of two writers loses, reads again and finds the other's note. A note holds for ``LEASE_S`` and is renewed
while the command works, also on a guest that was created again. Nobody renews the note of a killed command:
it is taken over when its time is past, or at once by a command that holds the same lock file, because the
file's lock proves that the owner is gone. Times are the node's, taken from its answers.

A lab without guests has no place for a note; then VMIDs decide, which the node gives only once.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dasklab.errors import LabError
from dasklab.machines.endpoint import lab_note
from dasklab.machines.endpoint.api_errors import CallError
from dasklab.machines.endpoint.change import Change
from dasklab.machines.endpoint.guest_kinds import BY_PATH
from dasklab.machines.endpoint.lab_note import LabNote
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.running.lock.lock import command_line
from dasklab.terminal import echo

LEASE_S = 300.0
RENEW_S = 60.0
WRITE_ATTEMPTS = 5  # others may write at the same time
MODIFIED = re.compile(r"detected modified configuration|checksum miss?match")


class LabInUseError(LabError):
    """Another command is using the lab."""


@dataclass(frozen=True)
class _Guest:
    path: str
    config: Mapping[str, Any]

    @property
    def description(self) -> str:
        return str(self.config.get("description", ""))

    @property
    def note(self) -> LabNote | None:
        return lab_note.read(self.description)


class NoteLock:
    """The note of one command in one lab.

    Args:
        pve: the endpoint.
        lab: the lab's name, which is the tag of its guests.
        places: node and VMID of each guest that the lab may have.
        lock_files: the lock files that this command holds.
    """

    def __init__(self, pve: Pve, lab: str, places: Iterable[tuple[str, int]], lock_files: Iterable[Path]):
        self._pve, self._lab = pve, lab
        self._places = set(places)
        self._key = secrets.token_hex(4)
        self._place = _place(lock_files)
        who = f"{getpass.getuser()}@{socket.gethostname()}: {command_line()}"
        self._owner = " ".join(who.encode("ascii", "replace").decode().split())

    def take(self) -> LabNote | None:
        """Write or renew the note.

        Returns:
            The note of a command that ended without removing it, if it was taken over.

        Raises:
            LabInUseError: another command is using the lab.
            LabError: the endpoint refused a call.
        """
        for _ in range(WRITE_ATTEMPTS):
            guests = self._guests()
            others = [guest.note for guest in guests if guest.note and guest.note.key != self._key]
            for note in others:
                if note.place != self._place and note.until > self._pve.node_time():
                    raise LabInUseError(
                        f"lab {self._lab} on {self._pve.endpoint.url} is in use by {note.owner}",
                        "wait until it ends; a command that was killed keeps the lab for at most"
                        f" {LEASE_S / 60:.0f} minutes",
                    )
            if not guests:
                return None
            note = LabNote(self._owner, self._pve.node_time() + LEASE_S, self._key, self._place)
            if self._write(guests[0], lab_note.with_note(guests[0].description, note)):
                return others[0] if others else None
        raise LabInUseError(f"the first guest of lab {self._lab} is being changed by others", "try again")

    def release(self) -> None:
        """Remove the note.

        Raises:
            LabError: the endpoint refused a call.
        """
        for _ in range(WRITE_ATTEMPTS):
            own = [guest for guest in self._guests() if guest.note and guest.note.key == self._key]
            if all(self._write(guest, lab_note.without(guest.description)) for guest in own):
                return

    def _guests(self) -> list[_Guest]:
        """Return the lab's guests, by VMID."""
        lists = [(node, api) for node in sorted({node for node, _ in self._places}) for api in BY_PATH]
        answers = self._pve.map(lambda where: self._pve.api.nodes(where[0])(where[1]).get(), lists)
        guests = sorted(
            (int(row["vmid"]), f"/nodes/{node}/{api}/{row['vmid']}/config")
            for (node, api), rows in zip(lists, answers, strict=True)
            for row in rows
            if (node, int(row["vmid"])) in self._places
            and self._lab in re.split(r"[;, ]+", str(row.get("tags") or ""))
        )
        paths = [path for _, path in guests]
        configs = self._pve.map(self._config, paths)
        return [_Guest(path, config) for path, config in zip(paths, configs, strict=True) if config]

    def _config(self, path: str) -> Mapping[str, Any] | None:
        """Return a guest's configuration; None if it was removed after it was listed."""
        try:
            config: Mapping[str, Any] = self._pve.api(path).get()
        except CallError as error:
            if "does not exist" not in error.cause:
                raise
            return None
        return config

    def _write(self, guest: _Guest, description: str) -> bool:
        """Write a description. Return False if somebody else has changed the guest meanwhile."""
        text = {"description": description} if description else {"delete": "description"}
        params = {**text, "digest": str(guest.config["digest"])}
        try:
            self._pve.call(Change("PUT", guest.path, "the note of who is using the lab", params))
        except CallError as error:
            if not MODIFIED.search(error.cause):
                raise
            return False
        return True


@contextmanager
def held(lock: NoteLock) -> Iterator[LabNote | None]:
    """Hold a lab by its note. A thread renews it.

    If another command has taken the lab over, because this one was suspended for longer than the lease, this
    process gets SIGINT.

    Yields:
        The note of a command that ended without removing it, if it was taken over.

    Raises:
        LabInUseError: another command is using the lab.
        LabError: the endpoint refused a call.
    """
    previous, stop = lock.take(), threading.Event()
    renewer = threading.Thread(target=_renew, args=(lock, stop), daemon=True)
    renewer.start()
    try:
        yield previous
    finally:
        stop.set()
        renewer.join()
        try:
            lock.release()
        except LabError as error:
            echo(f"the note that this lab is in use stays until its time is past: {error}", err=True)


def _renew(lock: NoteLock, stop: threading.Event) -> None:
    while not stop.wait(RENEW_S):
        try:
            lock.take()
        except LabInUseError as error:
            echo(f"this command was suspended, and {error.message}", err=True)
            os.kill(os.getpid(), signal.SIGINT)
            return
        except LabError:
            continue  # the next renewal may succeed; if not, the command itself will fail


def _place(lock_files: Iterable[Path]) -> str:
    """Return what identifies lock files: their paths, in this mount of this machine since its start."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    namespaces = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "mnt")]
    text = "\n".join([boot, *namespaces, *map(str, lock_files)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
