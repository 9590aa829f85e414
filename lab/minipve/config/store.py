"""Guests' configurations as PVE keeps them: ``key: value`` lines, then ``[PENDING]``, then snapshots.

Two locks: the file lock (nobody else works on this guest right now; the kernel releases it when its holder
dies) and the config lock, the option ``lock`` (an operation is unfinished; it stays when the endpoint dies).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from urllib.parse import quote, unquote

from minipve.atomic import flocked, write_atomic
from minipve.config import schema
from minipve.config.journal import Journal
from minipve.config.kinds import LXC, QEMU, Kind
from minipve.config.validate import Errors, check_value
from minipve.errors import ApiError, text_of

LOCK_WAIT_S = 10.0
SHORT_LOCK_WAIT_S = 1.0
_BREAKS = r"\x00-\x08\n-\x1f\x7f\x85\u2028\u2029"  # what any reader may take for the end of a line
_LINE = re.compile(rf"([a-z][a-z0-9_-]*): ([^{_BREAKS}]*)")
_SECTION = re.compile(r"\[([A-Za-z][A-Za-z0-9_-]+)\]")
_PENDING = "PENDING"
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%:")


_NAME = re.compile(r"([1-9][0-9]{2,8})\.conf")
log = logging.getLogger(__name__)


class DamagedError(ApiError):
    """A configuration that nobody can read."""

    def __init__(self, file: Path, where: str, kind: Kind) -> None:
        super().__init__(f"{file} is damaged ({where}): mend it, or remove the {kind.word}")


@dataclass
class GuestConfig:
    """A guest's file: options in force, those that wait (for a restart, for removal), those of snapshots."""

    options: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)
    kind: Kind = QEMU

    @classmethod
    def parse(cls, text: str, kind: Kind = QEMU) -> GuestConfig:
        """Read the file's text; ValueError, with the line's number, for what cannot be one of ours."""
        config = cls(kind=kind)
        section = config.options
        for number, line in enumerate(text.split("\n"), 1):
            if match := _SECTION.fullmatch(line):
                named = match[1] != _PENDING
                section = config.snapshots.setdefault(match[1], {}) if named else config.pending
            elif line.startswith("#"):
                before = f"{section['description']}\n" if "description" in section else ""
                section["description"] = before + unquote(line[1:])
            elif (match := _LINE.fullmatch(line)) and _sound(kind, match[1], match[2]):
                section[match[1]] = match[2]
            elif line:
                raise ValueError(f"line {number}")
        config.deleted = config.pending.pop("delete", "").split()
        if "description" in config.pending:
            config.pending["description"] = unquote(config.pending["description"])
        return config

    def copy(self) -> GuestConfig:
        """The same, to be changed."""
        snapshots = {name: dict(options) for name, options in self.snapshots.items()}
        return GuestConfig(dict(self.options), dict(self.pending), list(self.deleted), snapshots, self.kind)

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
        """True when the guest has been converted to a template."""
        return self.options.get("template") == "1"

    def check_lock(self) -> None:
        """500 when an unfinished operation holds the config lock."""
        if lock := self.options.get("lock"):
            raise ApiError(f"{self.kind.word} is locked ({lock})")

    def check_digest(self, expected: str | None) -> None:
        """500 when the caller saw another version of the file."""
        if expected and expected != self.digest:
            raise ApiError(self.kind.modified)


def _sound(kind: Kind, key: str, value: str) -> bool:
    """Whether a value that is worked with in here can be: a guest with another one is left alone."""
    typed = typed_as(key, kind)
    if typed is None or not (re.fullmatch(kind.damaging, key) or typed in ("integer", "boolean")):
        return True
    errors: Errors = {}
    check_value(schema.option(key, kind), value, key, errors)
    return not errors


@lru_cache(maxsize=1024)
def _parsed(text: str, kind: Kind) -> GuestConfig:
    return GuestConfig.parse(text, kind)


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


def typed(key: str, value: str, kind: Kind = QEMU) -> str | int:
    """The value as the API shows it: integers and booleans as JSON numbers, all else as text."""
    return int(value) if key == "snaptime" or typed_as(key, kind) in ("integer", "boolean") else value


def typed_as(key: str, kind: Kind = QEMU) -> str | None:
    """The type of an option; None when there is no such option."""
    try:
        return str(schema.option(key, kind).get("type"))
    except KeyError:
        return None


class GuestStore:
    """All configurations of one kind of guest on ``node``; ``homes`` says where those of every node are.

    Both kinds take their VMIDs from the same numbers, on all nodes.
    """

    def __init__(self, homes: Mapping[str, Path], locks: Path, node: str, kind: Kind = QEMU) -> None:
        self.kind = kind
        self.directory = homes[node] / kind.folder
        self.journal = Journal(homes[node] / "unfinished" / kind.name)
        self.locks = locks
        self.node = node
        self._told: set[str] = set()
        self._homes = homes
        self.directory.mkdir(parents=True, exist_ok=True)

    def _file(self, vmid: int) -> Path:
        return self.directory / f"{vmid}.conf"

    def vmids(self) -> list[int]:
        """All VMIDs of this kind in use, ascending."""
        found = (_NAME.fullmatch(file.name) for file in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def strangers(self) -> list[Path]:
        """What lies among the configurations and is none."""
        return [file for file in sorted(self.directory.iterdir()) if not _NAME.fullmatch(file.name)]

    def exists(self, vmid: int) -> bool:
        """True when the guest has a configuration."""
        return self._file(vmid).exists()

    def load(self, vmid: int) -> GuestConfig:
        """A guest's configuration; 500 with PVE's text without one, with the place when it is damaged."""
        file = self._file(vmid)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            name = f"nodes/{self.node}/{self.kind.folder}/{vmid}.conf"
            raise ApiError(f"Configuration file '{name}' does not exist") from None
        except OSError as error:
            raise DamagedError(file, text_of(error), self.kind) from None
        try:
            known = _parsed(data.decode(), self.kind)
        except UnicodeDecodeError as error:
            number = data[: error.start].count(b"\n") + 1
            raise DamagedError(file, f"line {number}", self.kind) from None
        except ValueError as error:
            raise DamagedError(file, str(error), self.kind) from None
        return known.copy()

    def load_or_empty(self, vmid: int) -> GuestConfig:
        """As ``load``, for who only wants to be rid of the guest: a damaged configuration is an empty one."""
        try:
            return self.load(vmid)
        except DamagedError:
            return GuestConfig(kind=self.kind)

    def all(self) -> Iterator[tuple[int, GuestConfig]]:
        """Every guest with its configuration; one that vanishes meanwhile, or is damaged, is left out."""
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

    def save(self, vmid: int, config: GuestConfig) -> None:
        """Store a configuration in one step. Without a lock, no work on the guest is unfinished."""
        write_atomic(self._file(vmid), config.text())
        if "lock" not in config.options:
            self.journal.end(vmid)

    def check_free(self, vmid: int) -> None:
        """500 when a guest of either kind, on any node, has the VMID."""
        for (node, home), kind in product(self._homes.items(), (QEMU, LXC)):
            if (home / kind.folder / f"{vmid}.conf").exists():
                raise ApiError(f"{kind.word} {vmid} already exists on node '{node}'")

    def create(self, vmid: int, lock: str) -> None:
        """Take a free VMID by a configuration that holds nothing but its lock; the journal notes it too."""
        with self.locked(vmid, SHORT_LOCK_WAIT_S):
            self.check_free(vmid)
            self.mark(vmid, GuestConfig(kind=self.kind), lock)

    def remove(self, vmid: int) -> None:
        """Give the VMID free again."""
        self._file(vmid).unlink(missing_ok=True)
        self.journal.end(vmid)

    def mark(self, vmid: int, config: GuestConfig, lock: str) -> None:
        """Set the config lock for work that a later endpoint must undo or finish if this one is killed."""
        self.journal.begin(vmid)
        config.options["lock"] = lock
        self.save(vmid, config)

    def unfinished(self, locks: Collection[str]) -> list[int]:
        """The guests that an earlier endpoint left with one of these locks, which it had set itself."""
        found = {vmid: self._lock_of(vmid) for vmid in self.journal.vmids()}
        for vmid in [vmid for vmid, lock in found.items() if lock is None]:  # killed just before the end
            self.journal.end(vmid)
        return [vmid for vmid, lock in found.items() if lock in locks]

    def _lock_of(self, vmid: int) -> str | None:
        return self.load_or_empty(vmid).options.get("lock") if self.exists(vmid) else None

    @contextmanager
    def locked(self, vmid: int, timeout_s: float = LOCK_WAIT_S, shared: bool = False) -> Iterator[None]:
        """Hold the lock of a VMID; 500 with PVE's text when someone else keeps it."""
        name = f"lock-{vmid}.conf"
        try:
            with flocked(self.locks / name, timeout_s, shared):
                yield
        except TimeoutError as late:
            if late.args != (str(self.locks / name),):
                raise
            raise ApiError(f"can't lock file '{self.kind.lock.format(vmid)}' - got timeout") from None

    @contextmanager
    def changing(self, vmid: int, timeout_s: float = LOCK_WAIT_S) -> Iterator[GuestConfig]:
        """Load under the file lock and store what the block made of it, unless the block fails."""
        with self.locked(vmid, timeout_s):
            config = self.load(vmid)
            yield config
            self.save(vmid, config)
