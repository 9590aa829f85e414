"""What the tables of records promise holds in all stored records, and a broken promise is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from dasklab import records
from dasklab.records import promises
from dasklab.records.schema import TABLES

DATA = Path(__file__).parents[3] / "data" / "records"
RECORDS = sorted(path.parent for path in DATA.glob("*/record.json"))


@pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)
def test_stored_records_keep_what_the_tables_promise(folder: Path) -> None:
    promises.validate(records.load(folder))


def test_the_promises_name_columns_that_exist() -> None:
    for table, columns in {**promises.DURATIONS, **promises.AMOUNTS, **promises.UNIQUE}.items():
        assert set(columns) <= set(TABLES[table])
    assert all(column in TABLES[table] for table, column in promises.SORTED.items())


def _negative_duration(frames: records.Frames) -> None:
    frames["load"] = frames["load"].assign(occupancy_s=-1.0)


def _missing_time_as_number(frames: records.Frames) -> None:
    frames["tasks"] = frames["tasks"].assign(due_s=-1.0)


def _backwards(frames: records.Frames) -> None:
    frames["busy"] = frames["busy"].assign(stop_s=frames["busy"].start_s - 1)


def _worker_twice(frames: records.Frames) -> None:
    frames["workers"] = pd.concat([frames["workers"]] * 2)


def _unsorted(frames: records.Frames) -> None:
    frames["load"] = frames["load"][::-1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_negative_duration, "table load: occupancy_s is not negative"),
        (_missing_time_as_number, "table tasks: due_s is a time"),
        (_backwards, "table busy: stop_s is not before start_s"),
        (_worker_twice, "table workers: repeat and address are unique"),
        (_unsorted, "table load: it is sorted by time_s"),
    ],
)
def test_a_broken_promise_is_named(damage: Callable[[records.Frames], None], message: str) -> None:
    frames = records.load(DATA / "running")
    damage(frames)
    with pytest.raises(ValueError, match=message):
        promises.validate(frames)
