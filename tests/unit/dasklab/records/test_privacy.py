"""What is stored of each column when keys are hashed, or code is left out."""

from __future__ import annotations

import json

import pytest
from dask.utils import key_split
from dasklab.records.recorder.layout import CLIENT, SCHEDULER, WORKER, Column, columns_of
from dasklab.records.recorder.privacy import HASHED, PUBLIC, Privacy, digest, hash_key, hash_metric

TEXTS = [
    pytest.param(column, id=f"{table}.{column.name}")
    for tables in (SCHEDULER, CLIENT, WORKER)
    for table, text in tables.items()
    for column in columns_of(text)
    if column.kind == "s"
]
SPAN = "0b9ee3fa-ea58-11f1-8df2-02fc00000001"


def stored(privacy: Privacy, content: str, text: str) -> str:
    (value,) = privacy.conceal([Column("column", "s", content)], {"column": [text]})["column"]
    return str(value)


@pytest.mark.parametrize("column", TEXTS)
def test_each_text_has_a_content_and_only_public_ones_are_stored(column: Column) -> None:
    assert column.content in PUBLIC | set(HASHED)
    text = json.dumps(["secret (/home/secret.py:1)"]) if column.content == "stack" else "secret"
    if column.content == "detail":
        text = json.dumps({"reason": "secret", "secret": 1, "status": "secret"})
    assert ("secret" in stored(Privacy(hashed=True), column.content, text)) == (column.content in PUBLIC)


@pytest.mark.parametrize("privacy", [Privacy(hashed=True), Privacy(code=False)])
def test_a_text_without_a_content_counts_as_a_secret(privacy: Privacy) -> None:
    (column,) = columns_of("added:s")
    assert privacy.conceal([column], {"added": ["secret", ""]}) == {"added": [digest("secret"), ""]}


@pytest.mark.parametrize("key", ["load-1f0e", "('read-csv-0b9e', 3)", "load"])
def test_hashed_keys_keep_their_kinds(key: str) -> None:
    assert key_split(hash_key(key)) == digest(key_split(key))


@pytest.mark.parametrize(
    ("metric", "hashed"),
    [
        ("execute/secret/thread-cpu/seconds", f"execute/{digest('secret')}/thread-cpu/seconds"),
        (f"execute/{SPAN}/a/b/other/count", f"execute/{SPAN}/{digest('a/b')}/other/count"),
        ("execute/None/secret/mine/seconds", f"execute/None/{digest('secret')}/{digest('mine')}/seconds"),
        ("gather-dep/network/seconds", "gather-dep/network/seconds"),
        ("process/waiting-for-cpu/seconds", "process/waiting-for-cpu/seconds"),
        ("secret", digest("secret")),
    ],
)
def test_labels_of_metrics_are_hashed_by_what_they_are(metric: str, hashed: str) -> None:
    assert hash_metric(metric) == hashed


def test_types_and_events_of_dask_s_own_stay() -> None:
    hashed = Privacy(hashed=True)
    for content, text in (("type", "int"), ("type", "pandas.core.frame.DataFrame"), ("event", "add-worker")):
        assert stored(hashed, content, text) == text
    assert stored(hashed, "place", "tcp://10.0.0.1:4000") == "tcp://10.0.0.1:4000"
    assert json.loads(stored(hashed, "detail", '{"status": "paused", "reason": "x"}')) == {"status": "paused"}


def test_without_code_lines_are_numbers() -> None:
    columns = columns_of("file:s:path line:i:line code:s:code")
    rows = {"file": ["a.py", "b.py", "", "a.py"], "line": [7, 7, 0, 7], "code": ["f()", "g()", "", "f()"]}
    concealed = Privacy(code=False).conceal(columns, rows)
    assert concealed == {"file": [""] * 4, "line": [1, 2, 0, 1], "code": [""] * 4}


@pytest.mark.parametrize(
    ("failure", "shortened"),
    [
        ("tcp://10.0.0.1:4000: add_task: ValueError('secret')", "tcp://10.0.0.1:4000: add_task: ValueError"),
        ("client: attach: SecretError('x: y(z)')", "client: attach: error"),
        ("secret words: of (whatever)", "a failure whose text is not stored"),
    ],
)
def test_texts_of_errors_count_as_code(failure: str, shortened: str) -> None:
    assert Privacy(code=False).failures({failure: 2}) == {shortened: 2}
    assert Privacy().failures({failure: 2}) == {failure: 2}
