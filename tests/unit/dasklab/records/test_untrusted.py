"""Records may come from anybody: they take bounded memory, and a senseless cell is refused by its name."""

from __future__ import annotations

import base64
import importlib
import json
import shutil
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dasklab import records
from dasklab.cli import main
from dasklab.errors import DamagedError
from dasklab.paths import WORKLOADS
from dasklab.records import chunk_file, chunks
from dasklab.records.document import RECORD, Record
from dasklab.records.read import TRACEBACK
from dasklab.results.run import Trial

from benchmarks.record_fuzz import Fuzzer

DATA = Path(__file__).parents[3] / "data" / "records"
Columns = dict[str, list[Any]]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    shutil.copytree(DATA / "killedworker", tmp_path / "record")
    return tmp_path / "record"


def change(record: Path, table: str, act: Callable[[Columns], None]) -> None:
    """Change a table wherever it is. A column is a name, a kind, what a reader must know, bytes."""
    content = (record / RECORD).read_bytes()
    (record / RECORD).unlink()
    for process, repeat, chunk in chunk_file.inflated(content):
        name, rows, columns = chunk_file.open_chunk(chunk)
        changed = {column[0]: list(column) for column in columns}
        if name == table and rows:
            act(changed)
        heads = [[name, kind, more, len(body)] for name, kind, more, body in changed.values()]
        bodies = b"".join(body for *_, body in changed.values())
        parts = [name.encode(), json.dumps([rows, heads]).encode(), bodies]
        chunk_file.append(record / RECORD, process, [zlib.compress(b"\n".join(parts))], repeat)


def number(column: str, code: str, value: float) -> Callable[[Columns], None]:
    def act(columns: Columns) -> None:
        values = array(code, columns[column][3])
        values[0] = value
        columns[column][3] = values.tobytes()

    return act


def known(column: str, value: Any) -> Callable[[Columns], None]:
    def act(columns: Columns) -> None:
        columns[column][2] = value

    return act


def text(column: str, value: Any) -> Callable[[Columns], None]:
    def act(columns: Columns) -> None:
        columns[column][2][0] = value

    return act


def exchange(first: str, second: str) -> Callable[[Columns], None]:
    def act(columns: Columns) -> None:
        columns[first][0], columns[second][0] = second, first

    return act


SENSELESS = {
    "a time past any clock": ("busy", "stop", known("stop", 10**400)),
    "a time past the year 2200": ("busy", "stop", number("stop", "q", 2**62)),
    "a time before 1970": ("busy", "start", known("start", -1e9)),
    "minus infinity": ("metrics", "value", number("value", "d", -float("inf"))),
    "no number of threads": ("workers", "threads", number("threads", "q", -(2**63))),
    "more threads than memory": ("workers", "threads", number("threads", "q", 2**31)),
    "no JSON in a setting": ("config", "value", text("value", "1s")),
    "no JSON in a detail": ("events", "detail", text("detail", "{0.__class__}")),
    "no stack": ("profile", "stack", text("stack", '"x"')),
    "a number among texts": ("tasks", "key", text("key", 5)),
    "a text that is not there": ("tasks", "key", number("key", "i", -1)),
    "no column of settings": ("config", "value", lambda columns: columns.pop("value")),
    "exchanged columns": ("metrics", "(metric|value)", exchange("metric", "value")),
}


@pytest.mark.parametrize(("table", "column", "act"), SENSELESS.values(), ids=SENSELESS)
def test_a_senseless_cell_is_refused_with_its_table_and_column(
    record: Path, table: str, column: str, act: Callable[[Columns], None]
) -> None:
    change(record, table, act)
    with pytest.raises(DamagedError, match=rf"record\.chunks: damaged: table {table}, column {column}: "):
        records.load_record(Trial(record))


def test_what_nobody_foresaw_is_one_line_and_its_traceback_is_kept(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise KeyError("nobody\x1b[31m")

    monkeypatch.setattr("dasklab.breakdown.show.explain.summarise", fail)
    result = CliRunner().invoke(main, ["explain", str(record)])
    assert result.exit_code == 3, result.output
    place = r"damaged or unexpected, at breakdown/show/explain.py:"
    assert place in result.stderr and "Traceback" not in result.output and "\x1b" not in result.output
    log = (tmp_path / "cache" / TRACEBACK).read_text()
    assert log.startswith("Traceback") and "KeyError" in log and "\x1b" not in log


def test_a_sample_of_mutations_has_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``benchmarks/record_fuzz.py`` tries thousands."""
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    fuzzer = Fuzzer(tmp_path)
    for seed in range(5000, 5005):
        fuzzer.once(seed)
    assert not fuzzer.faults


def test_a_chunk_unpacks_to_a_bounded_size(record: Path) -> None:
    bomb = zlib.compress(b"tasks\n[1,[]]\n" + bytes(2 * chunk_file.RATIO_APPLIES_BYTES))
    chunk_file.append(record / RECORD, "client", [bomb])
    with pytest.raises(DamagedError, match=r"damaged: .* bytes unpack to more than 16 MiB"):
        chunks.read(record / RECORD)


def test_all_chunks_together_unpack_to_a_bounded_size(record: Path) -> None:
    bomb = zlib.compress(b"other\n[0,[]]\n" + bytes(chunk_file.RATIO_APPLIES_BYTES - 100))
    chunk_file.append(record / RECORD, "tcp://x", [bomb] * 5)
    with pytest.raises(DamagedError, match="more content than a recorder packs into so few"):
        chunks.read(record / RECORD)


@pytest.mark.parametrize("moment", ["1e400", "-1", "1e12", "NaN"])
def test_a_record_of_no_time_is_refused(record: Path, moment: str) -> None:
    document = json.loads((record / Record.FILE).read_text())
    described = json.dumps(document | {"stop": 0}).replace('"stop": 0', f'"stop": {moment}')
    (record / Record.FILE).write_text(described)
    with pytest.raises(DamagedError, match=r"record\.json: damaged"):
        records.load_record(Trial(record))


def test_replayed_program_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(WORKLOADS)
    _replay = importlib.import_module("_replay")
    monkeypatch.setattr(_replay, "MAX_PROGRAM_BYTES", 1000)
    packed = base64.b64encode(zlib.compress(json.dumps({"keys": ["x" * 2000]}).encode())).decode()
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        _replay.unpack(packed)
