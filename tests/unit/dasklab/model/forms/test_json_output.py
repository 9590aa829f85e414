"""JSON that commands print is ASCII: no console can change it."""

from __future__ import annotations

import json

from dasklab.model.forms.json_output import to_json


def test_json_is_ascii_and_keeps_every_character() -> None:
    names = ["größe", "日本", "\U0001f600"]
    document = to_json(names, list[str])
    assert document.isascii()
    assert json.loads(document) == names
