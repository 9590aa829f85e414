"""The API's own rules: for each implemented method its parameters and the permissions it asks for.

``schema.json`` holds the facts only (types, limits, formats, permissions), taken from the schema that PVE
publishes: ``python -m lab.minipve.config.schema
apidata.json`` makes it anew for the methods that have a handler.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lab.minipve.config.validate import Errors, check_object
from lab.minipve.errors import ApiError

FILE = Path(__file__).with_name("schema.json")
_KEEP = (
    "type", "optional", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "format",
    "requires", "default_key", "alias", "keyAlias", "items",
)  # fmt: skip
_COUNTS = {
    "net": 32, "ipconfig": 32, "ide": 4, "sata": 6, "scsi": 31, "virtio": 16, "unused": 256, "serial": 4,
    "parallel": 3, "usb": 15, "hostpci": 16, "numa": 8, "virtiofs": 10,
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
        return ",".join(map(str, value))
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
    return Method(
        verb,
        path,
        facts.get("permissions"),
        facts.get("allowtoken", 1) == 1,
        "{node}" in path,
        _expand(properties),
    )


@cache
def option(name: str) -> dict[str, Any]:
    """The facts of a VM option, e.g. ``net0`` or ``cores``; KeyError when there is none of that name."""
    return method("PUT", "/nodes/{node}/qemu/{vmid}/config").properties[name]


@cache
def option_format(name: str) -> dict[str, Any]:
    """The property-string format of a VM option, e.g. that of ``net0``."""
    found = option(name)["format"]
    if not isinstance(found, dict):
        raise KeyError(f"{name} is not a property string")
    return found


def _facts(raw: dict[str, Any]) -> dict[str, Any]:
    kept = {key: raw[key] for key in _KEEP if raw.get(key) is not None}
    if isinstance(kept.get("format"), dict):
        kept["format"] = {name: _facts(sub) for name, sub in sorted(kept["format"].items())}
    if "items" in kept:
        kept["items"] = _facts(kept["items"])
    for bound in ("minimum", "maximum"):
        if isinstance(kept.get(bound), str):
            kept[bound] = json.loads(kept[bound])
    return kept


def _walk(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _walk(node.get("children", []))


def _select(apidata: list[dict[str, Any]], wanted: set[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    methods: dict[str, dict[str, Any]] = {}
    for node in _walk(apidata):
        for verb, info in node.get("info", {}).items():
            if (verb, node["path"]) not in wanted:
                continue
            entry: dict[str, Any] = {}
            if rule := info.get("permissions"):
                entry["permissions"] = {key: rule[key] for key in ("user", "check") if key in rule}
            if info.get("allowtoken") == 0:
                entry["allowtoken"] = 0
            properties = info.get("parameters", {}).get("properties") or {}
            entry["parameters"] = {name: _facts(raw) for name, raw in sorted(properties.items())}
            for name in re.findall(r"{([^}]+)}", node["path"]):
                entry["parameters"].setdefault(name, {"type": "string"})
            methods.setdefault(node["path"], {})[verb] = entry
    return methods


def generate(apidata: list[dict[str, Any]], wanted: set[tuple[str, str]], source: str) -> dict[str, Any]:
    """Facts of the ``wanted`` (verb, path) pairs; parameters that several methods share stand once."""
    methods = _select(apidata, wanted)
    seen: dict[str, Counter[str]] = {}
    for entry in (e for verbs in methods.values() for e in verbs.values()):
        for name, facts in entry["parameters"].items():
            seen.setdefault(name, Counter())[json.dumps(facts, sort_keys=True)] += 1
    common = {name: texts.most_common(1)[0][0] for name, texts in seen.items() if texts.total() > 1}
    for entry in (e for verbs in methods.values() for e in verbs.values()):
        entry["parameters"] = {
            name: None if common.get(name) == json.dumps(facts, sort_keys=True) else facts
            for name, facts in entry["parameters"].items()
        }
    shared = {name: json.loads(common[name]) for name in sorted(common)}
    return {"source": source, "parameters": shared, "methods": dict(sorted(methods.items()))}


def dumps(document: dict[str, Any]) -> str:
    """The document as JSON with one parameter or method a line: small, and readable in a diff."""
    lines = ["{", f' "source": {json.dumps(document["source"])},']
    for part in ("parameters", "methods"):
        rows = [f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in document[part].items()]
        lines.append(f' "{part}": {{\n' + ",\n".join(rows) + "\n }" + ("," if part == "parameters" else ""))
    return "\n".join([*lines, "}"]) + "\n"


def implemented() -> set[tuple[str, str]]:
    """(verb, path) of every handler."""
    from lab.minipve import api

    return set(api.load())


def main(argv: list[str]) -> None:
    """Write ``schema.json`` from the apidata file that ``argv`` names."""
    if len(argv) != 1:
        raise SystemExit("usage: python -m lab.minipve.config.schema APIDATA.json")
    wanted = implemented()
    document = generate(json.loads(Path(argv[0]).read_text()), wanted, Path(argv[0]).stem)
    missing = wanted - {(verb, path) for path, verbs in document["methods"].items() for verb in verbs}
    if missing:
        raise SystemExit(f"no such method in {argv[0]}: {sorted(missing)}")
    FILE.write_text(dumps(document))


if __name__ == "__main__":
    main(sys.argv[1:])
