"""Validate values and property strings (``virtio=02:..,bridge=vmbr1``) as pve-common's JSONSchema.pm does.

All errors of a call are collected, with PVE's text per parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from minipve.config.rules.formats import LIMITS, PROPERTY_FORMATS, check_format

Facts = Mapping[str, Any]
Errors = dict[str, str]
MISSING = "property is missing and it is not optional"
UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
_TYPES = {  # the number of digits is limited to what fits into 64 bits
    "boolean": re.compile(r"[01]"),
    "integer": re.compile(r"[+-]?[0-9]{1,18}"),
    "number": re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,2})?"),
}
_TRUE, _FALSE = {"1", "on", "yes", "true"}, {"0", "off", "no", "false"}


class FormatError(ValueError):
    """A property string does not match its format; ``str()`` is PVE's text."""


@lru_cache(maxsize=512)
def _pattern(perl: str) -> re.Pattern[str]:
    return re.compile(perl.replace("(?^:", "(?:").replace("(?^i:", "(?i:"), re.ASCII)


def _add(errors: Errors, path: str, text: str) -> None:
    errors[path] = f"{errors[path]}\\n{text}" if path in errors else text


def _type_ok(kind: str, value: Any) -> bool:
    if kind in ("array", "object"):
        return isinstance(value, list if kind == "array" else dict)
    if isinstance(value, list | dict):
        return False
    pattern = _TYPES.get(kind)
    return pattern is None or pattern.fullmatch(str(value)) is not None


def _limits(facts: Facts, value: Any) -> str | None:
    """Return the first complaint about pattern, length, range or enumeration."""
    text = str(value)
    if (pattern := facts.get("pattern")) and not _pattern(pattern).fullmatch(text):
        return "value does not match the regex pattern"
    if (most := facts.get("maxLength")) is not None and len(text) > most:
        return f"value may only be {most} characters long"
    if (least := facts.get("minLength")) is not None and len(text) < least:
        return f"value must be at least {least} characters long"
    if facts.get("type") in ("integer", "number"):
        if (top := facts.get("maximum")) is not None and float(text) > float(top):
            return f"value must have a maximum value of {top}"
        if (floor := facts.get("minimum")) is not None and float(text) < float(floor):
            return f"value must have a minimum value of {floor}"
    if (allowed := facts.get("enum")) and text not in map(str, allowed):
        return f"value '{text}' does not have a value in the enumeration '{', '.join(map(str, allowed))}'"
    return None


def _format_complaint(fmt: str | Facts, value: Any, path: str) -> str | None:
    property_format = fmt if not isinstance(fmt, str) else PROPERTY_FORMATS.get(fmt)
    if property_format is not None:
        try:
            parse(property_format, str(value), path)
        except FormatError as refused:
            return str(refused)
        return None
    complaint = check_format(str(fmt), str(value))
    return None if complaint is None else complaint + "\n"


def check_value(facts: Facts, value: Any, path: str, errors: Errors) -> None:
    """Check a value against its schema; ``None`` means that the caller did not pass it."""
    if value is None:
        if not facts.get("optional") and "alias" not in facts:
            _add(errors, path, MISSING)
        return None
    kind = facts.get("type", "string")
    if not _type_ok(kind, value):
        actual = "ARRAY" if isinstance(value, list) else "HASH" if isinstance(value, dict) else f"'{value}'"
        return _add(errors, path, f"type check ('{kind}') failed - got {actual}")
    if "\0" in str(value):  # no file name or argument of a process can contain it
        return _add(errors, path, f"type check ('{kind}') failed - value contains a null character")
    if kind == "array":
        for position, item in enumerate(value):
            check_value(facts.get("items", {}), item, f"{path}[{position}]", errors)
        return None
    fmt = facts.get("format")
    if isinstance(fmt, str) and fmt in LIMITS:
        facts = {**facts, **LIMITS[fmt]}
    elif fmt and (complaint := _format_complaint(fmt, value, path)):
        return _add(errors, path, f"invalid format - {complaint}")
    if complaint := _limits(facts, value):
        _add(errors, path, complaint)
    return None


def check_object(properties: Facts, values: Mapping[str, Any], path: str, errors: Errors) -> None:
    """Check named values: each property, unknown names, and ``requires``."""
    prefix = f"{path}." if path else ""
    for key, facts in properties.items():
        check_value(facts, values.get(key), prefix + key, errors)
    for key in values:
        if key not in properties:
            _add(errors, prefix + key, UNKNOWN)
            continue
        needed = properties[key].get("requires")
        if isinstance(needed, str) and values.get(needed) is None:
            _add(errors, prefix + needed, f"missing property required by '{prefix + key}'")


def _pairs(fmt: Facts, text: str) -> dict[str, Any]:
    default = next((key for key, facts in fmt.items() if facts.get("default_key")), None)
    pairs: dict[str, Any] = {}

    def put(key: str, value: Any) -> None:
        if key in pairs:
            raise FormatError(f"duplicate key in comma-separated list property: {key}\n")
        pairs[key] = value

    for part in filter(str.strip, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            if default is None:
                raise FormatError("value without key, but schema does not define a default key\n")
            put(default, part)
            continue
        if not key or not value:
            raise FormatError("missing key in comma-separated list property\n")
        facts = fmt.get(key, {})
        if "keyAlias" in facts:
            put(facts["keyAlias"], key)
        key = facts.get("alias", key)
        if fmt.get(key, {}).get("type") == "boolean":
            value = "1" if value.lower() in _TRUE else "0" if value.lower() in _FALSE else value
        put(key, value)
    return pairs


def parse(fmt: Facts, text: str, path: str = "") -> dict[str, str]:
    """Parse a property string, with aliases resolved and booleans as ``0``/``1``.

    Raises:
        FormatError: the string does not match the format.
    """
    parts = _pairs(fmt, text)
    errors: Errors = {}
    check_object(fmt, parts, path, errors)
    if errors:
        lines = "".join(f"{key}: {errors[key]}\n" for key in sorted(errors))
        raise FormatError(f"format error\n{lines}")
    return parts


def to_text(fmt: Facts, values: Mapping[str, str]) -> str:
    """Return the text in PVE's order: default key, required keys, the rest; ``model=MAC`` as one part."""
    default = next((key for key, facts in fmt.items() if facts.get("default_key")), "")
    joined = {facts["keyAlias"]: facts["alias"] for facts in fmt.values() if "keyAlias" in facts}
    rank = {True: 2, False: 1}
    order = sorted(values, key=lambda k: (0 if k == default else rank[bool(fmt[k].get("optional"))], k))
    swallowed = {other for key, other in joined.items() if key in values and other in values}
    parts = []
    for key in order:
        if key in swallowed:
            continue
        if key in joined and joined[key] in values:
            parts.append(f"{values[key]}={values[joined[key]]}")
        else:
            parts.append(values[key] if key == default else f"{key}={values[key]}")
    return ",".join(parts)
