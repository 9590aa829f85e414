"""``python -m minipve.make_schema APIDATA.json``: the facts of ``config/schema.json``, made anew.

They are taken from the schema that PVE publishes, for the methods that have a handler here.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minipve import api
from minipve.config import schema

_KEEP = (
    "type", "optional", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "format",
    "requires", "default_key", "alias", "keyAlias", "items",
)  # fmt: skip


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
    return set(api.load())


def main(argv: list[str]) -> None:
    """Write ``schema.json`` from the apidata file that ``argv`` names."""
    if len(argv) != 1:
        raise SystemExit("usage: python -m minipve.make_schema APIDATA.json")
    wanted = implemented()
    document = generate(json.loads(Path(argv[0]).read_text()), wanted, Path(argv[0]).stem)
    missing = wanted - {(verb, path) for path, verbs in document["methods"].items() for verb in verbs}
    if missing:
        raise SystemExit(f"no such method in {argv[0]}: {sorted(missing)}")
    schema.FILE.write_text(dumps(document))


if __name__ == "__main__":
    main(sys.argv[1:])
