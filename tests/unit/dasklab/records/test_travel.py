"""Plugins are loaded only by the version of Python that pickled them."""

from __future__ import annotations

import asyncio
import pickle
import sys
from types import SimpleNamespace

import pytest
from dasklab.records.recorder.base import Owner
from dasklab.records.recorder.worker import WorkerRecorder
from dasklab.records.travel import other_python, pack_plugin
from distributed import WorkerPlugin

MINE = ".".join(map(str, sys.version_info[:3])) + ".final.0"
RECORDER = WorkerRecorder(Owner("record", "client", "process", "me", frozenset()), False, 1.0)


def test_the_same_python_loads_the_recorder() -> None:
    loaded = pickle.loads(pack_plugin(RECORDER))
    assert loaded.owner.record == "record" and hasattr(loaded, "attach")


def test_another_python_loads_a_plugin_that_does_nothing() -> None:
    loaded = pickle.loads(pack_plugin(RECORDER, (3, 0)))
    assert isinstance(loaded, WorkerPlugin) and loaded.reason == "another Python"


class Unloadable:
    def __reduce__(self) -> tuple[object, ...]:
        return __import__, ("a_module_that_no_dask_has",)


def test_a_plugin_that_cannot_be_imported_there_says_so_when_visited() -> None:
    loaded = pickle.loads(pack_plugin(Unloadable()))
    worker = SimpleNamespace(handlers={})
    loaded.setup(worker)
    answer = asyncio.run(worker.handlers["dasklab_take"](record="any"))
    assert "a_module_that_no_dask_has" in next(iter(answer["failures"]))
    loaded.teardown(worker)
    assert worker.handlers == {}


@pytest.mark.parametrize(
    ("versions", "python"),
    [
        ({"packages": {"python": MINE}}, ""),
        ({"packages": {"python": "3.1.4.final.0"}}, "3.1.4"),
        ({"packages": {}}, ""),
        (OSError("gone"), ""),
        (None, ""),
    ],
)
def test_a_version_that_cannot_load_it_is_named(versions: object, python: str) -> None:
    assert other_python(versions) == python
