"""The API's own rules: for each implemented method its parameters and the permissions it asks for.

``schema.json`` holds the facts only (types, limits, formats, permissions), taken from the schema that PVE
publishes, for the methods that have a handler; ``minipve.make_schema`` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from minipve.config.formats import PROPERTY_FORMATS
from minipve.config.kinds import QEMU, Kind
from minipve.config.validate import Errors, check_object, parse, to_text
from minipve.errors import ApiError

FILE = Path(__file__).with_name("schema.json")
_COUNTS = {
    "net": 32, "ipconfig": 32, "ide": 4, "sata": 6, "scsi": 31, "virtio": 16, "unused": 256, "serial": 4,
    "parallel": 3, "usb": 15, "hostpci": 16, "numa": 8, "virtiofs": 10, "mp": 256, "dev": 256,
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One HTTP method of one path: who may call it and with which parameters."""

    verb: str
    path: str
    permissions: dict[str, Any] | None
    allow_token: bool
    on_node: bool
    properties: dict[str, dict[str, Any]]

    def check(self, given: dict[str, Any]) -> dict[str, Any]:
        """Validate and convert (integers to int, booleans to 0/1); 400 with PVE's text for each fault."""
        values = {key: _reshape(self.properties.get(key, {}), value) for key, value in given.items()}
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


@cache
def method(verb: str, path: str) -> Method:
    """The rules of ``verb`` on ``path`` (a template such as ``/nodes/{node}/qemu``)."""
    shared = _document()["parameters"]
    facts = _document()["methods"][path][verb]
    properties = {
        name: shared[name] if own is None else own for name, own in facts.get("parameters", {}).items()
    }
    if "cdrom" in properties:  # PVE's other name of ide2, whose format is published under a name only
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
    """The facts of a guest's option, e.g. ``net0`` or ``cores``; KeyError when there is none of that name."""
    return method("PUT", f"{kind.path}/config").properties[name]


def property_format(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The parts of a parameter that is a property string; None for any other."""
    found = facts.get("format")
    return found if isinstance(found, dict) else PROPERTY_FORMATS.get(str(found))


def option_format(name: str, kind: Kind = QEMU) -> Mapping[str, Any]:
    """The property-string format of a guest's option, e.g. that of ``net0``."""
    found = property_format(option(name, kind))
    if found is None:
        raise KeyError(f"{name} is not a property string")
    return found


def parse_option(name: str, text: str, kind: Kind = QEMU) -> dict[str, str]:
    """The parts of an option that is a property string, e.g. ``net0``; FormatError if it is refused."""
    return dict(_parsed(name, text, kind))


@lru_cache(maxsize=8192)
def _parsed(name: str, text: str, kind: Kind) -> Mapping[str, str]:
    """Kept: a list of hundreds of guests must answer in milliseconds."""
    return parse(option_format(name, kind), text)


def option_text(name: str, parts: Mapping[str, str], kind: Kind = QEMU) -> str:
    """The text of a guest's option in PVE's canonical order."""
    return to_text(option_format(name, kind), parts)
