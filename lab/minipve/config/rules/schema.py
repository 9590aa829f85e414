"""Kinds of guest, and the parameters and permissions of each method, as PVE has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from minipve.base.errors import ApiError
from minipve.config.rules.formats import PROPERTY_FORMATS
from minipve.config.rules.validate import Errors, check_object, parse, to_text

# The two kinds of guest, virtual machine and container, and the words that PVE uses for each.


@dataclass(frozen=True)
class Kind:
    """``name`` is for paths and ids, ``word`` for error messages, ``tasks`` is the prefix of task types."""

    name: str
    word: str
    tasks: str
    folder: str
    lock: str
    damaging: str
    """Pattern of the options that we parse. An invalid one makes the configuration a damaged one."""
    modified: str
    """PVE's error when the caller's digest is out of date."""

    @property
    def path(self) -> str:
        """The path template of a guest, as in PVE's API viewer."""
        return f"/nodes/{{node}}/{self.name}/{{vmid}}"


QEMU = Kind(
    "qemu",
    "VM",
    "qm",
    "qemu-server",
    "/var/lock/qemu-server/lock-{}.conf",
    r"(?:net|unused|ide|sata|scsi|virtio)[0-9]+|memory|agent|cpu",
    "checksum mismatch (file change by other user?)",
)
LXC = Kind(
    "lxc",
    "CT",
    "vz",
    "lxc",
    "/run/lock/lxc/pve-config-{}.lock",
    r"net[0-9]+|rootfs|memory|swap|features",
    "detected modified configuration - file changed by other user? Try again.",
)


# The parameters and required permissions of each implemented method, read from `schema.json`.
#
# `python -m minipve.api.make_schema` writes `schema.json`: types, limits, formats and permissions from the
# schema that PVE publishes, for the methods that have a handler here.

FILE = Path(__file__).with_name("schema.json")
_COUNTS = {
    "net": 32, "ipconfig": 32, "ide": 4, "sata": 6, "scsi": 31, "virtio": 16, "unused": 256, "serial": 4,
    "parallel": 3, "usb": 15, "hostpci": 16, "numa": 8, "virtiofs": 10, "mp": 256, "dev": 256,
    "acmedomain": 6,
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """An HTTP method on a path: who may call it, and with which parameters."""

    verb: str
    path: str
    permissions: dict[str, Any] | None
    allow_token: bool
    on_node: bool
    properties: dict[str, dict[str, Any]]

    def check(self, params: dict[str, Any]) -> dict[str, Any]:
        """Validate and convert (integers to int, booleans to 0/1). Raises 400 with a text per parameter."""
        values = {key: _reshape(self.properties.get(key, {}), value) for key, value in params.items()}
        errors: Errors = {}
        check_object(self.properties, values, "", errors)
        if errors:
            raise ApiError("Parameter verification failed.", 400, errors)
        return {key: _convert(self.properties[key], value) for key, value in values.items()}


def _reshape(facts: dict[str, Any], value: Any) -> Any:
    if facts.get("type") == "array" and not isinstance(value, list):
        return [value]
    if isinstance(value, list) and str(facts.get("format", "")).endswith("-list"):
        return ",".join(value) if all(isinstance(item, str) for item in value) else value
    return value


def _convert(facts: dict[str, Any], value: Any) -> Any:
    kind = facts.get("type", "string")
    if kind in ("integer", "boolean"):
        return int(value)
    return value if kind in ("array", "object") else str(value)


def _expand(properties: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    expanded: dict[str, dict[str, Any]] = {}
    for name, facts in properties.items():
        base = name.removesuffix("[n]")
        names = [name] if base == name else [f"{base}{i}" for i in range(_COUNTS[base])]
        expanded.update(dict.fromkeys(names, facts))
    return expanded


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text())
    return document


def source() -> str:
    """Return the name of the schema that the facts come from."""
    return str(_document()["source"])


def without_handler() -> dict[str, list[str]]:
    """Return the methods of Proxmox VE without a handler here: path template -> verbs."""
    paths: dict[str, list[str]] = _document()["without_handler"]
    return paths


@cache
def method(verb: str, path: str) -> Method:
    """Return the method for ``verb`` on ``path`` (a template such as ``/nodes/{node}/qemu``)."""
    shared = _document()["parameters"]
    facts = _document()["methods"][path][verb]
    properties = {
        name: shared[name] if own is None else own for name, own in facts.get("parameters", {}).items()
    }
    if "cdrom" in properties:  # an alias of ide2; the published schema only names its format
        properties["cdrom"] = properties["ide[n]"]
    return Method(
        verb,
        path,
        facts.get("permissions"),
        facts.get("allowtoken", 1) == 1,
        "{node}" in path,
        _expand(properties),
    )


@cache
def option(name: str, kind: Kind = QEMU) -> dict[str, Any]:
    """Return the schema of a guest's option, e.g. ``net0``. Raises KeyError for an unknown name."""
    return method("PUT", f"{kind.path}/config").properties[name]


def property_format(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the format of a parameter that is a property string; None for any other parameter."""
    fmt = facts.get("format")
    return fmt if isinstance(fmt, dict) else PROPERTY_FORMATS.get(str(fmt))


def option_format(name: str, kind: Kind = QEMU) -> Mapping[str, Any]:
    """Return the property-string format of a guest's option, e.g. of ``net0``."""
    fmt = property_format(option(name, kind))
    if fmt is None:
        raise KeyError(f"{name} is not a property string")
    return fmt


def parse_option(name: str, text: str, kind: Kind = QEMU) -> dict[str, str]:
    """Parse an option that is a property string, e.g. ``net0``. Raises FormatError if it is refused."""
    return dict(_parsed(name, text, kind))


@lru_cache(maxsize=8192)
def _parsed(name: str, text: str, kind: Kind) -> Mapping[str, str]:
    """Parse with a cache, so that a list of hundreds of guests takes milliseconds."""
    return parse(option_format(name, kind), text)


def option_text(name: str, parts: Mapping[str, str], kind: Kind = QEMU) -> str:
    """Return the text of a guest's option in PVE's canonical order."""
    return to_text(option_format(name, kind), parts)
