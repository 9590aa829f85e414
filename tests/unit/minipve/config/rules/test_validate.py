"""Validation of values and property strings with PVE's texts, and the canonical form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minipve.config.rules import schema
from minipve.config.rules.validate import FormatError, check_value, parse, to_text

NET = schema.option_format("net0")


def _complaint(facts: dict[str, Any], value: Any) -> str | None:
    errors: dict[str, str] = {}
    check_value(facts, value, "x", errors)
    return errors.get("x")


@pytest.mark.parametrize(
    ("facts", "value", "complaint"),
    [
        ({"type": "integer"}, "12", None),
        ({"type": "integer"}, 12, None),
        ({"type": "integer"}, "1.5", "type check ('integer') failed - got '1.5'"),
        ({"type": "integer"}, "9" * 5000, f"type check ('integer') failed - got '{'9' * 5000}'"),
        ({"type": "integer"}, "\u0661", "type check ('integer') failed - got '\u0661'"),
        ({"type": "number"}, "1e999", "type check ('number') failed - got '1e999'"),
        ({"type": "string"}, "a\0", "type check ('string') failed - value contains a null character"),
        ({"type": "number"}, "1e3", None),
        ({"type": "number"}, "abc", "type check ('number') failed - got 'abc'"),
        ({"type": "boolean"}, "1", None),
        ({"type": "boolean"}, "yes", "type check ('boolean') failed - got 'yes'"),
        ({"type": "string"}, ["a"], "type check ('string') failed - got ARRAY"),
        ({"type": "string"}, {"a": 1}, "type check ('string') failed - got HASH"),
        ({"type": "string"}, None, "property is missing and it is not optional"),
        ({"type": "string", "optional": 1}, None, None),
        ({"type": "integer", "minimum": 16}, 1, "value must have a minimum value of 16"),
        ({"type": "integer", "maximum": 4}, "5", "value must have a maximum value of 4"),
        ({"type": "string", "maxLength": 2}, "abc", "value may only be 2 characters long"),
        ({"type": "string", "minLength": 2}, "a", "value must be at least 2 characters long"),
        ({"type": "string", "pattern": "(?^:a+)"}, "ab", "value does not match the regex pattern"),
        ({"type": "string", "pattern": "a|b"}, "ab", "value does not match the regex pattern"),
        (
            {"type": "string", "enum": ["a", "b"]},
            "c",
            "value 'c' does not have a value in the enumeration 'a, b'",
        ),
        ({"type": "array", "items": {"type": "string"}}, "a", "type check ('array') failed - got 'a'"),
    ],
)
def test_values(facts: dict[str, Any], value: Any, complaint: str | None) -> None:
    assert _complaint(facts, value) == complaint


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("virtio,bridge=vmbr0", "virtio,bridge=vmbr0"),
        ("model=e1000,macaddr=02:00:00:00:00:01,rate=0.5", "e1000=02:00:00:00:00:01,rate=0.5"),
        ("rate=1,bridge=b,virtio=02:00:00:00:00:01", "virtio=02:00:00:00:00:01,bridge=b,rate=1"),
        ("virtio,link_down=on,firewall=no", "virtio,firewall=0,link_down=1"),
        ("virtio,,tag=5,", "virtio,tag=5"),
    ],
)
def test_nics_in_canonical_form(given_text: str, canonical: str) -> None:
    assert to_text(NET, parse(NET, given_text)) == canonical


@pytest.mark.parametrize(
    ("option", "text", "complaint"),
    [
        (
            "net0",
            "virtio,virtio=02:00:00:00:00:01",
            "duplicate key in comma-separated list property: model\n",
        ),
        ("net0", "bridge=b", "format error\nx.model: property is missing and it is not optional\n"),
        ("net0", "virtio,mtu=", "missing key in comma-separated list property\n"),
        (
            "net0",
            "virtio,rate=-1,mtu=0",
            "format error\nx.mtu: value must have a minimum value of 1\n"
            "x.rate: value must have a minimum value of 0\n",
        ),
        ("memory", "1", "format error\nx.current: value must have a minimum value of 16\n"),
    ],
)
def test_refused_property_strings(option: str, text: str, complaint: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse(schema.option_format(option), text, "x")
    assert str(refused.value) == complaint


macs = st.integers(0, 2**40 - 1).map(lambda n: "02:" + n.to_bytes(5, "big").hex(":"))
nics = st.fixed_dictionaries(
    {"model": st.sampled_from(NET["model"]["enum"])},
    optional={
        "macaddr": macs,
        "bridge": st.from_regex(r"[a-z][a-z0-9_.-]{0,9}", fullmatch=True),
        "rate": st.integers(0, 10**6).map(str),
        "link_down": st.sampled_from("01"),
        "tag": st.integers(1, 4094).map(str),
        "mtu": st.integers(1, 65520).map(str),
    },
)


@settings(max_examples=40, deadline=None)
@given(nics)
def test_printing_and_parsing_a_nic_are_inverse(nic: dict[str, str]) -> None:
    assert parse(NET, to_text(NET, nic)) == nic


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_parser_raises_only_format_errors(text: str) -> None:
    try:
        parts = parse(NET, text)
    except FormatError:
        return
    assert parse(NET, to_text(NET, parts)) == parts
