"""``python -m minipve.api.make_schema APIDATA.json``: regenerate ``config/schema.json``.

Its facts come from the schema that PVE publishes, for the methods that have a handler here.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minipve.api import routing
from minipve.config.rules import schema

_KEEP = (
    "type", "optional", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "format",
    "requires", "default_key", "alias", "keyAlias", "items",
)  # fmt: skip


def _facts(raw: dict[str, Any]) -> dict[str, Any]:
    facts = {key: raw[key] for key in _KEEP if raw.get(key) is not None}
    if isinstance(facts.get("format"), dict):
        facts["format"] = {name: _facts(sub) for name, sub in sorted(facts["format"].items())}
    if "items" in facts:
        facts["items"] = _facts(facts["items"])
    for bound in ("minimum", "maximum"):
        if isinstance(facts.get(bound), str):
            facts[bound] = json.loads(facts[bound])
    return facts


def _walk(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _walk(node.get("children", []))


def _select(apidata: list[dict[str, Any]], pairs: set[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    methods: dict[str, dict[str, Any]] = {}
    for node in _walk(apidata):
        for verb, info in node.get("info", {}).items():
            if (verb, node["path"]) not in pairs:
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


def generate(apidata: list[dict[str, Any]], pairs: set[tuple[str, str]], source: str) -> dict[str, Any]:
    """Return the facts of (verb, path) pairs. Parameters that several methods share appear once."""
    methods = _select(apidata, pairs)
    variants: dict[str, Counter[str]] = {}
    for entry in (e for verbs in methods.values() for e in verbs.values()):
        for name, facts in entry["parameters"].items():
            variants.setdefault(name, Counter())[json.dumps(facts, sort_keys=True)] += 1
    common = {name: texts.most_common(1)[0][0] for name, texts in variants.items() if texts.total() > 1}
    for entry in (e for verbs in methods.values() for e in verbs.values()):
        entry["parameters"] = {
            name: None if common.get(name) == json.dumps(facts, sort_keys=True) else facts
            for name, facts in entry["parameters"].items()
        }
    shared = {name: json.loads(common[name]) for name in sorted(common)}
    others = {
        node["path"]: sorted(verb for verb in node.get("info", {}) if (verb, node["path"]) not in pairs)
        for node in _walk(apidata)
    }
    return {
        "source": source,
        "parameters": shared,
        "methods": dict(sorted(methods.items())),
        "without_handler": {path: verbs for path, verbs in sorted(others.items()) if verbs},
    }


def dumps(document: dict[str, Any]) -> str:
    """Return JSON with one parameter or method per line: small, and readable in a diff."""
    lines = ["{", f' "source": {json.dumps(document["source"])},']
    parts = []
    for part in ("parameters", "methods", "without_handler"):
        rows = [f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in document[part].items()]
        parts.append(f' "{part}": {{\n' + ",\n".join(rows) + "\n }")
    return "\n".join([*lines, ",\n".join(parts), "}"]) + "\n"


def main(argv: list[str]) -> None:
    """Write ``schema.json`` from the API schema in the file ``argv[0]``."""
    if len(argv) != 1:
        raise SystemExit("usage: python -m minipve.api.make_schema APIDATA.json")
    pairs = set(routing.load())
    document = generate(json.loads(Path(argv[0]).read_text()), pairs, Path(argv[0]).stem)
    missing = pairs - {(verb, path) for path, verbs in document["methods"].items() for verb in verbs}
    if missing:
        raise SystemExit(f"no such method in {argv[0]}: {sorted(missing)}")
    schema.FILE.write_text(dumps(document))


if __name__ == "__main__":
    main(sys.argv[1:])
