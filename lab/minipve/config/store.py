"""VM configurations as PVE keeps them: ``key: value`` lines, then ``[PENDING]`` and a section a snapshot.

Two locks: the file lock (nobody else works on this VM right now; the kernel releases it when its holder
dies) and the config lock, the option ``lock`` (an operation is unfinished; it stays when the endpoint dies).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote

from lab.minipve.config import schema
from lab.minipve.config.validate import Errors, check_value
from lab.minipve.errors import ApiError, text_of
from lab.minipve.files import flocked, write_atomic

LOCK_WAIT_S = 10.0
SHORT_LOCK_WAIT_S = 1.0
_BREAKS = r"\x00-\x08\n-\x1f\x7f\x85\u2028\u2029"  # what any reader may take for the end of a line
_LINE = re.compile(rf"([a-z][a-z0-9_-]*): ([^{_BREAKS}]*)")
_SECTION = re.compile(r"\[([A-Za-z][A-Za-z0-9_-]+)\]")
_PENDING = "PENDING"
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%:")


_NAME = re.compile(r"([1-9][0-9]{2,8})\.conf")
_WORKED_WITH = re.compile(r"(?:net|unused|ide|sata|scsi|virtio)[0-9]+|memory|agent|cpu")
log = logging.getLogger(__name__)


class DamagedError(ApiError):
    """A configuration that nobody can read."""

    def __init__(self, file: Path, where: str) -> None:
        super().__init__(f"{file} is damaged ({where}): mend it, or remove the VM")


@dataclass
class VmConfig:
    """A VM's file: the options in force, those that wait (for a restart, for removal), those of snapshots."""

    options: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> VmConfig:
        """Read the file's text; ValueError, with the line's number, for what cannot be one of ours."""
        config = cls()
        section = config.options
        for number, line in enumerate(text.split("\n"), 1):
            if match := _SECTION.fullmatch(line):
                named = match[1] != _PENDING
                section = config.snapshots.setdefault(match[1], {}) if named else config.pending
            elif line.startswith("#"):
                before = f"{section['description']}\n" if "description" in section else ""
                section["description"] = before + unquote(line[1:])
            elif (match := _LINE.fullmatch(line)) and _sound(match[1], match[2]):
                section[match[1]] = match[2]
            elif line:
                raise ValueError(f"line {number}")
        config.deleted = config.pending.pop("delete", "").split()
        if "description" in config.pending:
            config.pending["description"] = unquote(config.pending["description"])
        return config

    def copy(self) -> VmConfig:
        """The same, to be changed."""
        snapshots = {name: dict(options) for name, options in self.snapshots.items()}
        return VmConfig(dict(self.options), dict(self.pending), list(self.deleted), snapshots)

    def text(self) -> str:
        """The file's text."""
        pending = dict(self.pending)
        if "description" in pending:
            pending["description"] = _escape(pending["description"])
        if self.deleted:
            pending["delete"] = " ".join(sorted(self.deleted))
        lines = _described(self.options)
        if pending:
            lines += ["", f"[{_PENDING}]", *_written(pending)]
        for name, options in sorted(self.snapshots.items()):
            lines += ["", f"[{name}]", *_described(options)]
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


def _sound(key: str, value: str) -> bool:
    """Whether a value that is worked with in here can be: a VM with another one is left alone."""
    kind = typed_as(key)
    if kind is None or not (_WORKED_WITH.fullmatch(key) or kind in ("integer", "boolean")):
        return True
    errors: Errors = {}
    check_value(schema.option(key), value, key, errors)
    return not errors


@lru_cache(maxsize=1024)
def _parsed(text: str) -> VmConfig:
    return VmConfig.parse(text)


def check_line(key: str, value: str) -> None:
    """500 with PVE's text for a value that would not stay in its line, for any reader of lines."""
    if key != "description" and not _LINE.fullmatch(f"{key}: {value}"):
        raise ApiError(f"unable to parse value of '{key}' - property contains a line feed")


def _described(options: Mapping[str, str]) -> list[str]:
    """A section whose description stands above it as comments."""
    notes = [f"#{_escape(line)}" for line in _lines(options.get("description", ""))]
    return notes + _written({key: value for key, value in options.items() if key != "description"})


def _written(options: Mapping[str, str]) -> list[str]:
    for key, value in options.items():
        check_line(key, value)
    return [f"{key}: {options[key]}" for key in sorted(options)]


def _lines(description: str) -> list[str]:
    return description.removesuffix("\n").split("\n") if description else []


def _escape(line: str) -> str:
    """As PVE's ``encode_text``: what is not printable ASCII, and ``:`` and ``%``, percent-encoded."""
    return quote(line, safe=_PLAIN)


def typed(key: str, value: str) -> str | int:
    """The value as the API shows it: integers and booleans as JSON numbers, all else as text."""
    return int(value) if key == "snaptime" or typed_as(key) in ("integer", "boolean") else value


def typed_as(key: str) -> str | None:
    """The type of an option; None when there is no such option."""
    try:
        return str(schema.option(key).get("type"))
    except KeyError:
        return None


class VmStore:
    """All VM configurations of one instance."""

    def __init__(self, directory: Path, locks: Path, node: str) -> None:
        self.directory = directory
        self.locks = locks
        self.node = node
        self._told: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True)

    def _file(self, vmid: int) -> Path:
        return self.directory / f"{vmid}.conf"

    def vmids(self) -> list[int]:
        """All VMIDs in use, ascending."""
        found = (_NAME.fullmatch(file.name) for file in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def strangers(self) -> list[Path]:
        """What lies among the configurations and is none."""
        return [file for file in sorted(self.directory.iterdir()) if not _NAME.fullmatch(file.name)]

    def exists(self, vmid: int) -> bool:
        """True when the VM has a configuration."""
        return self._file(vmid).exists()

    def load(self, vmid: int) -> VmConfig:
        """A VM's configuration; 500 with PVE's text when there is none, with the place when it is damaged."""
        file = self._file(vmid)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            name = f"nodes/{self.node}/qemu-server/{vmid}.conf"
            raise ApiError(f"Configuration file '{name}' does not exist") from None
        except OSError as error:
            raise DamagedError(file, text_of(error)) from None
        try:
            known = _parsed(data.decode())
        except UnicodeDecodeError as error:
            number = data[: error.start].count(b"\n") + 1
            raise DamagedError(file, f"line {number}") from None
        except ValueError as error:
            raise DamagedError(file, str(error)) from None
        return known.copy()

    def remains(self, vmid: int) -> VmConfig:
        """As ``load``, for who only wants to be rid of the VM: a damaged configuration is an empty one."""
        try:
            return self.load(vmid)
        except DamagedError:
            return VmConfig()

    def all(self) -> Iterator[tuple[int, VmConfig]]:
        """Every VM with its configuration; one that vanishes meanwhile, or is damaged, is left out."""
        for vmid in self.vmids():
            try:
                yield vmid, self.load(vmid)
            except DamagedError as damaged:
                self._tell(str(damaged))
            except ApiError:
                continue

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)

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
