"""What a process records is bounded, and comes back as it went in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dasklab.errors import LabError
from dasklab.model.settings.plain_dask import plain_settings
from dasklab.records import chunk_file, chunks
from dasklab.records.recorder.store import Log, Store

TABLES = {"seen": "time:t key:s size:i share:f", "other": "time:t"}
NAN = math.nan


def test_rows_come_back_from_chunks() -> None:
    memory = Store(TABLES, most_rows=100)
    rows = [(1.7e9 + i / 7, f"('x\n{i % 3}', {i})", -i, i / 3) for i in range(10)]
    for row in rows:
        memory.logs["seen"].add(*row)
    memory.logs["seen"].add(NAN, "", 0, NAN)
    assert memory.pack() and not memory.pack()
    (chunk,) = memory.take(1e9)
    table, columns = chunks.unpack(chunk_file.inflate(chunk), {})
    frame = pd.DataFrame(columns)
    assert (table, list(frame)) == ("seen", ["time", "key", "size", "share"])
    assert frame.time[:10].to_numpy() == pytest.approx([row[0] for row in rows], abs=2e-6)
    assert frame[["key", "size", "share"]][:10].values.tolist() == [list(row[1:]) for row in rows]
    assert np.isnan(frame.time[10]) and np.isnan(frame.share[10])


def test_equal_texts_of_several_chunks_are_one_object() -> None:
    memory = Store({"seen": "key:s"}, most_rows=100)
    for _ in range(2):
        memory.logs["seen"].add("".join(["a ", "key"]))
        memory.pack()
    texts: dict[str, str] = {}
    packed = map(chunk_file.inflate, memory.take(1e9))
    first, second = (chunks.unpack(chunk, texts)[1]["key"][0] for chunk in packed)
    assert first == "a key" and first is second


def test_a_full_log_drops_its_oldest_rows_and_counts_them() -> None:
    log = Log("time:t", most=5)
    for number in range(8):
        log.add(float(number))
    assert log.lost == 3
    log.pack()
    assert (log.lost, len(log.rows)) == (3, 0)


def test_full_memory_drops_the_oldest_chunks() -> None:
    memory = Store(TABLES, most_rows=1000, most_bytes=300)
    for number in range(20):
        memory.logs["other"].add(float(number))
        memory.pack()
        assert memory.nbytes <= 300
    assert 0 < memory.dropped < 20 and memory.lost > 0
    _, columns = chunks.unpack(chunk_file.inflate(memory.take(1e9)[-1]), {})
    assert columns["time"].tolist() == [19.0]


def test_chunks_are_handed_over_in_portions() -> None:
    memory = Store(TABLES, most_rows=1000)
    for number in range(6):
        memory.logs["other"].add(float(number))
        memory.pack()
    assert [len(memory.take(1)) for _ in range(7)] == [1, 1, 1, 1, 1, 1, 0]


def test_an_interrupted_file_is_whole_up_to_there(tmp_path: Path) -> None:
    memory = Store(TABLES, most_rows=10)
    for number in range(2):
        memory.logs["other"].add(float(number))
        memory.pack()
        chunk_file.append(tmp_path / "record.chunks", "scheduler", memory.take(1e9))
    content = (tmp_path / "record.chunks").read_bytes()
    (tmp_path / "record.chunks").write_bytes(content[:-3])
    assert chunks.read(tmp_path / "record.chunks")[None]["scheduler"]["other"].time.tolist() == [0.0]


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "record.chunks").write_bytes(b'["scheduler", 4]\nabcd')
    with pytest.raises(LabError, match=r"record\.chunks: damaged: "):
        chunks.read(tmp_path / "record.chunks")


def test_only_settings_of_the_list_are_recorded() -> None:
    config = {
        "comm": {"timeouts": {"tcp": "30s"}, "tls": {"ca-file": "/home/me/ca.pem"}},
        "scheduler": {"worker-saturation": 1.1, "apikey": "abc", "default-task-durations": {"secret": 1}},
        "worker": {"preload": ["http://me:pw@host/x.py"], "preload-argv": ["--password", "x"]},
        "passwd": "abc",
        "added-later": "abc",
    }
    assert dict(plain_settings(config)) == {"comm.timeouts.tcp": "30s", "scheduler.worker-saturation": 1.1}
