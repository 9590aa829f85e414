"""What a record says of itself is checked against its file of chunks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.records import chunk_file
from dasklab.records.document import RECORD, Record, read_document

ABOUT = {"form": 2, "client": "c", "start": 1.0, "stop": 2.0, "lost": {}, "failures": {}}
CHUNKS = [b"first chunk\n", b"second chunk"]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    for process, chunk in zip(("client", "scheduler"), CHUNKS, strict=True):
        chunk_file.append(tmp_path / RECORD, process, [chunk])
    return tmp_path


def describe(record: Path, **more: object) -> None:
    (record / Record.FILE).write_text(json.dumps(ABOUT | more))


def shorten(record: Path, missing_bytes: int) -> int:
    """Cut bytes off; return how many there were."""
    content = (record / RECORD).read_bytes()
    (record / RECORD).write_bytes(content[: len(content) - missing_bytes])
    return len(content)


@pytest.mark.parametrize("missing_bytes", [1, len(CHUNKS[1]), len(CHUNKS[1]) + 1])
def test_file_that_ends_within_a_frame_is_not_complete(record: Path, missing_bytes: int) -> None:
    shorten(record, missing_bytes)
    describe(record, complete=None, complete_until=1.5)
    about = read_document(record)
    assert about.complete is False and about.complete_until is None
    describe(record, complete=True)
    with pytest.raises(LabError, match="damaged: its end is missing"):
        read_document(record)


def test_file_that_lacks_whole_frames_is_shorter_than_it_was(record: Path) -> None:
    whole = shorten(record, len(b'["scheduler", 12]\n') + len(CHUNKS[1]))
    assert not chunk_file.is_cut_off(record / RECORD)
    describe(record, chunks_bytes=whole)
    assert read_document(record).complete is False
    describe(record, chunks_bytes=whole, complete=True)
    with pytest.raises(LabError, match="its end is missing"):
        read_document(record)


@pytest.mark.parametrize("complete", [None, False, True])
def test_whole_file_is_as_complete_as_it_says(record: Path, complete: bool | None) -> None:
    describe(record, complete=complete, chunks_bytes=(record / RECORD).stat().st_size)
    assert read_document(record).complete is complete


@pytest.mark.parametrize("head", ['["client", -40]', '["client", "x"]', "[1, 2]", "{}", "no JSON"])
def test_file_that_is_no_sequence_of_frames_is_damaged(record: Path, head: str) -> None:
    """A negative length would be read for ever."""
    (record / RECORD).write_bytes(head.encode() + b"\n" + (record / RECORD).read_bytes())
    describe(record)
    with pytest.raises(LabError, match=f"{RECORD}: damaged: "):
        read_document(record)


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "Invalid JSON"), ("[]", "should be an object"), ('{"form": 2}', "client: Field required")],
)
def test_damage_of_the_description_is_named(record: Path, content: str, words: str) -> None:
    (record / Record.FILE).write_text(content)
    with pytest.raises(LabError, match=f"{Record.FILE}: damaged: .*{words}"):
        read_document(record)


def test_missing_chunks_are_named(record: Path) -> None:
    describe(record)
    (record / RECORD).unlink()
    with pytest.raises(LabError, match=f"{RECORD} is missing"):
        read_document(record)
