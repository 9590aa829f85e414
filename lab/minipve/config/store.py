"""Configuration files of guests in PVE's format: ``key: value`` lines, then ``[PENDING]``, then snapshots.

There are two locks. The file lock protects a guest while a thread works on it; the kernel releases it when
the process dies. The config lock is the option ``lock``. It marks an unfinished operation and survives.
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

from minipve.base.atomic import flocked, write_atomic
from minipve.base.errors import ApiError, text_of
from minipve.config.journal import Journal
from minipve.config.rules import schema
from minipve.config.rules.schema import LXC, QEMU, Kind
from minipve.config.rules.validate import Errors, check_value

LOCK_WAIT_S = 10.0
SHORT_LOCK_WAIT_S = 1.0
_BREAKS = r"\x00-\x08\n-\x1f\x7f\x85\u2028\u2029"  # whatever some program reads as a line break
_LINE = re.compile(rf"([a-z][a-z0-9_-]*): ([^{_BREAKS}]*)")
_SECTION = re.compile(r"\[([A-Za-z][A-Za-z0-9_-]+)\]")
_PENDING = "PENDING"
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%:")


_NAME = re.compile(r"([1-9][0-9]{2,8})\.conf")
log = logging.getLogger(__name__)


class DamagedError(ApiError):
    """A configuration file that cannot be parsed."""

    def __init__(self, file: Path, where: str, kind: Kind) -> None:
        super().__init__(f"{file} is damaged ({where}): repair it, or remove the {kind.word}")


@dataclass
class GuestConfig:
    """A guest's options: current, pending (set or deleted at the next start), and those of its snapshots."""

    options: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)
    kind: Kind = QEMU

    @classmethod
    def parse(cls, text: str, kind: Kind = QEMU) -> GuestConfig:
        """Parse a configuration file. Raises ValueError with the number of the first invalid line."""
        config = cls(kind=kind)
        section = config.options
        for number, line in enumerate(text.split("\n"), 1):
            if match := _SECTION.fullmatch(line):
                is_snapshot = match[1] != _PENDING
                section = config.snapshots.setdefault(match[1], {}) if is_snapshot else config.pending
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
        """Return a deep copy."""
        snapshots = {name: dict(options) for name, options in self.snapshots.items()}
        return GuestConfig(dict(self.options), dict(self.pending), list(self.deleted), snapshots, self.kind)

    def text(self) -> str:
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
        """Return the options as they will be after the next start."""
        remaining = {key: value for key, value in self.options.items() if key not in self.deleted}
        return remaining | self.pending

    @property
    def is_template(self) -> bool:
        """Whether the guest has been converted to a template."""
        return self.options.get("template") == "1"

    def check_lock(self) -> None:
        """Raise 500 when the config lock is set."""
        if lock := self.options.get("lock"):
            raise ApiError(f"{self.kind.word} is locked ({lock})")

    def check_digest(self, expected: str | None) -> None:
        """Raise 500 when the caller read another version of the file."""
        if expected and expected != self.digest:
            raise ApiError(self.kind.modified)


def _sound(kind: Kind, key: str, value: str) -> bool:
    """Return whether a value is valid, if we interpret the option. Other options are stored as they are."""
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
    """Raise 500 with PVE's text when a value contains anything that some program reads as a line break."""
    if key != "description" and not _LINE.fullmatch(f"{key}: {value}"):
        raise ApiError(f"unable to parse value of '{key}' - property contains a line feed")


def _described(options: Mapping[str, str]) -> list[str]:
    """Return the lines of a section, with its description as comments at the top."""
    notes = [f"#{_escape(line)}" for line in _lines(options.get("description", ""))]
    return notes + _written({key: value for key, value in options.items() if key != "description"})


def _written(options: Mapping[str, str]) -> list[str]:
    for key, value in options.items():
        check_line(key, value)
    return [f"{key}: {options[key]}" for key in sorted(options)]


def _lines(description: str) -> list[str]:
    return description.removesuffix("\n").split("\n") if description else []


def _escape(line: str) -> str:
    """Percent-encode non-ASCII and control characters, ``:`` and ``%``, as PVE's `encode_text` does."""
    return quote(line, safe=_PLAIN)


def typed(key: str, value: str, kind: Kind = QEMU) -> str | int:
    """Return the value as the API shows it: integers and booleans as numbers, everything else as text."""
    return int(value) if key == "snaptime" or typed_as(key, kind) in ("integer", "boolean") else value


def typed_as(key: str, kind: Kind = QEMU) -> str | None:
    """Return the type of an option; None for an unknown option."""
    try:
        return str(schema.option(key, kind).get("type"))
    except KeyError:
        return None


class GuestStore:
    """All configurations of one kind of guest on ``node``.

    VMIDs are unique across both kinds and all nodes, so a store knows the folders of all nodes (``homes``).
    """

    def __init__(self, homes: Mapping[str, Path], locks: Path, node: str, kind: Kind = QEMU) -> None:
        self.kind = kind
        self.directory = homes[node] / kind.folder
        self.journal = Journal(homes[node] / "unfinished" / kind.name)
        self.locks = locks
        self.node = node
        self._reported: set[str] = set()
        self._homes = homes
        self.directory.mkdir(parents=True, exist_ok=True)

    def _file(self, vmid: int) -> Path:
        return self.directory / f"{vmid}.conf"

    def vmids(self) -> list[int]:
        """Return all VMIDs of this kind in use, ascending."""
        matches = (_NAME.fullmatch(file.name) for file in self.directory.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def unknown_files(self) -> list[Path]:
        """Return the files in the folder that are not configurations."""
        return [file for file in sorted(self.directory.iterdir()) if not _NAME.fullmatch(file.name)]

    def exists(self, vmid: int) -> bool:
        return self._file(vmid).exists()

    def load(self, vmid: int) -> GuestConfig:
        """Return a guest's configuration.

        Raises:
            ApiError: 500 with PVE's text when there is none.
            DamagedError: the file cannot be parsed; the message names the line.
        """
        file = self._file(vmid)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            name = f"nodes/{self.node}/{self.kind.folder}/{vmid}.conf"
            raise ApiError(f"Configuration file '{name}' does not exist") from None
        except OSError as error:
            raise DamagedError(file, text_of(error), self.kind) from None
        try:
            config = _parsed(data.decode(), self.kind)
        except UnicodeDecodeError as error:
            number = data[: error.start].count(b"\n") + 1
            raise DamagedError(file, f"line {number}", self.kind) from None
        except ValueError as error:
            raise DamagedError(file, str(error), self.kind) from None
        return config.copy()

    def load_or_empty(self, vmid: int) -> GuestConfig:
        """Like ``load``, but a damaged configuration is empty: enough to stop or remove the guest."""
        try:
            return self.load(vmid)
        except DamagedError:
            return GuestConfig(kind=self.kind)

    def all(self) -> Iterator[tuple[int, GuestConfig]]:
        """Yield every guest with its configuration. Damaged and just removed ones are left out."""
        for vmid in self.vmids():
            try:
                yield vmid, self.load(vmid)
            except DamagedError as damaged:
                self._warn_once(str(damaged))
            except ApiError:
                continue

    def _warn_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            log.warning("%s", text)

    def save(self, vmid: int, config: GuestConfig) -> None:
        """Replace the file in one step. A configuration without a config lock also ends the journal entry."""
        write_atomic(self._file(vmid), config.text())
        if "lock" not in config.options:
            self.journal.end(vmid)

    def check_free(self, vmid: int) -> None:
        """Raise 500 when a guest of either kind on any node has the VMID."""
        for (node, home), kind in product(self._homes.items(), (QEMU, LXC)):
            if (home / kind.folder / f"{vmid}.conf").exists():
                raise ApiError(f"{kind.word} {vmid} already exists on node '{node}'")

    def create(self, vmid: int, lock: str) -> None:
        """Reserve a free VMID with a configuration that holds only its lock, and a journal entry."""
        with self.locked(vmid, SHORT_LOCK_WAIT_S):
            self.check_free(vmid)
            self.begin_work(vmid, GuestConfig(kind=self.kind), lock)

    def remove(self, vmid: int) -> None:
        """Remove the configuration, which frees the VMID."""
        self._file(vmid).unlink(missing_ok=True)
        self.journal.end(vmid)

    def move(self, vmid: int, target: GuestStore) -> None:
        """Move a configuration with a config lock to another node, in one step."""
        target.journal.begin(vmid)
        self._file(vmid).rename(target._file(vmid))
        self.journal.end(vmid)

    def begin_work(self, vmid: int, config: GuestConfig, lock: str) -> None:
        """Set the config lock and a journal entry, so that a later endpoint can finish or undo the work."""
        self.journal.begin(vmid)
        config.options["lock"] = lock
        self.save(vmid, config)

    def unfinished(self, locks: Collection[str]) -> list[int]:
        """Return the guests that an earlier endpoint left with one of ``locks``, set by itself."""
        lock_of = {vmid: self._lock_of(vmid) for vmid in self.journal.vmids()}
        for vmid in [vmid for vmid, lock in lock_of.items() if lock is None]:  # killed just before the end
            self.journal.end(vmid)
        return [vmid for vmid, lock in lock_of.items() if lock in locks]

    def _lock_of(self, vmid: int) -> str | None:
        return self.load_or_empty(vmid).options.get("lock") if self.exists(vmid) else None

    @contextmanager
    def locked(self, vmid: int, timeout_s: float = LOCK_WAIT_S, shared: bool = False) -> Iterator[None]:
        """Hold the file lock of a VMID. Raises 500 with PVE's text after ``timeout_s`` seconds of waiting."""
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
        """Yield the configuration under the file lock, and save it unless the block fails."""
        with self.locked(vmid, timeout_s):
            config = self.load(vmid)
            yield config
            self.save(vmid, config)
