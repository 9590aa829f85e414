"""VM configurations as PVE keeps them: one text file a VM, ``key: value`` lines, a ``[PENDING]`` section.

Two locks: the file lock (nobody else works on this VM right now; the kernel releases it when its holder
dies) and the config lock, the option ``lock`` (an operation is unfinished; it stays when the endpoint dies).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from lab.minipve.config import schema
from lab.minipve.errors import ApiError
from lab.minipve.files import flocked, write_atomic

LOCK_WAIT_S = 10.0
SHORT_LOCK_WAIT_S = 1.0


@dataclass
class VmConfig:
    """A VM's file: the options in force, those that wait for a restart, those that wait for removal."""

    options: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str) -> VmConfig:
        """Read the file's text."""
        config = cls()
        section, notes = config.options, []
        for line in text.splitlines():
            if line == "[PENDING]":
                section = config.pending
            elif line.startswith("#"):
                notes.append(unquote(line[1:]))
            elif line:
                key, _, value = line.partition(": ")
                section[key] = value
        if notes:
            config.options["description"] = "\n".join(notes)
        config.deleted = config.pending.pop("delete", "").split()
        if "description" in config.pending:
            config.pending["description"] = unquote(config.pending["description"])
        return config

    def text(self) -> str:
        """The file's text."""
        options, pending = dict(self.options), dict(self.pending)
        lines = [f"#{_escape(line)}" for line in options.pop("description", "").splitlines()]
        lines += [f"{key}: {options[key]}" for key in sorted(options)]
        if "description" in pending:
            pending["description"] = _escape(pending["description"])
        if self.deleted:
            pending["delete"] = " ".join(sorted(self.deleted))
        if pending:
            lines += ["", "[PENDING]", *(f"{key}: {pending[key]}" for key in sorted(pending))]
        return "\n".join(lines) + "\n"

    @property
    def digest(self) -> str:
        """SHA-1 of the file's text, as PVE reports it."""
        return hashlib.sha1(self.text().encode(), usedforsecurity=False).hexdigest()

    def merged(self) -> dict[str, str]:
        """The options as they will be after the next start."""
        kept = {key: value for key, value in self.options.items() if key not in self.deleted}
        return kept | self.pending

    @property
    def is_template(self) -> bool:
        """True when the VM has been converted to a template."""
        return self.options.get("template") == "1"

    def check_lock(self) -> None:
        """500 when an unfinished operation holds the config lock."""
        if lock := self.options.get("lock"):
            raise ApiError(f"VM is locked ({lock})")

    def check_digest(self, expected: str | None) -> None:
        """500 when the caller saw another version of the file."""
        if expected and expected != self.digest:
            raise ApiError("checksum mismatch (file change by other user?)")


def _escape(line: str) -> str:
    return re.sub(r"[%\x00-\x1f\x7f]", lambda m: f"%{ord(m[0]):02X}", line)


def typed(key: str, value: str) -> str | int:
    """The value as the API shows it: integers and booleans as JSON numbers, all else as text."""
    try:
        kind = schema.option(key).get("type")
    except KeyError:
        return value
    return int(value) if kind in ("integer", "boolean") else value


class VmStore:
    """All VM configurations of one instance."""

    def __init__(self, directory: Path, locks: Path, node: str) -> None:
        self.directory = directory
        self.locks = locks
        self.node = node
        directory.mkdir(parents=True, exist_ok=True)

    def _file(self, vmid: int) -> Path:
        return self.directory / f"{vmid}.conf"

    def vmids(self) -> list[int]:
        """All VMIDs in use, ascending."""
        return sorted(int(file.stem) for file in self.directory.glob("[1-9]*.conf"))

    def exists(self, vmid: int) -> bool:
        """True when the VM has a configuration."""
        return self._file(vmid).exists()

    def load(self, vmid: int) -> VmConfig:
        """A VM's configuration; 500 with PVE's text when there is none."""
        try:
            return VmConfig.parse(self._file(vmid).read_text(encoding="utf-8"))
        except FileNotFoundError:
            name = f"nodes/{self.node}/qemu-server/{vmid}.conf"
            raise ApiError(f"Configuration file '{name}' does not exist") from None

    def all(self) -> Iterator[tuple[int, VmConfig]]:
        """Every VM with its configuration; one that vanishes meanwhile is left out."""
        for vmid in self.vmids():
            try:
                yield vmid, self.load(vmid)
            except ApiError:
                continue

    def save(self, vmid: int, config: VmConfig) -> None:
        """Store a configuration in one step."""
        write_atomic(self._file(vmid), config.text())

    def create(self, vmid: int, lock: str) -> None:
        """Take a free VMID by a configuration that holds nothing but its lock."""
        with self.locked(vmid, SHORT_LOCK_WAIT_S):
            if self.exists(vmid):
                raise ApiError(f"VM {vmid} already exists on node '{self.node}'")
            self.save(vmid, VmConfig({"lock": lock}))

    def remove(self, vmid: int) -> None:
        """Give the VMID free again."""
        self._file(vmid).unlink(missing_ok=True)

    @contextmanager
    def locked(self, vmid: int, timeout_s: float = LOCK_WAIT_S, shared: bool = False) -> Iterator[None]:
        """Hold the VM's file lock; 500 with PVE's text when someone else keeps it."""
        name = f"lock-{vmid}.conf"
        try:
            with flocked(self.locks / name, timeout_s, shared):
                yield
        except TimeoutError as late:
            if late.args != (str(self.locks / name),):
                raise
            raise ApiError(f"can't lock file '/var/lock/qemu-server/{name}' - got timeout") from None

    @contextmanager
    def changing(self, vmid: int, timeout_s: float = LOCK_WAIT_S) -> Iterator[VmConfig]:
        """Load under the file lock and store what the block made of it, unless the block fails."""
        with self.locked(vmid, timeout_s):
            config = self.load(vmid)
            yield config
            self.save(vmid, config)
