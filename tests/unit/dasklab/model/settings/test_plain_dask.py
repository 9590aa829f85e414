"""No setting of Dask that names code is taken from a record, its twin, or a run of somebody else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import dask
import distributed
import pandas as pd
import pytest
from dasklab.model.experiments.foreign_code import code_of
from dasklab.model.settings.dask_settings import defaults
from dasklab.model.settings.plain_dask import TEXT_OF, is_plain, plain_settings
from dasklab.model.settings.trial_settings import Settings
from dasklab.model.settings.variants import ResolvedScheduler
from dasklab.predict.record import _dask
from pydantic import BaseModel

from tests.unit.dasklab.predict.samples import TRIAL

# What Dask imports, or hands to what it imports
IMPORTED = {
    f"distributed.{name}"
    for name in (
        *("client.preload", "client.security-loader", "nanny.preload", "nanny.environ"),
        *("scheduler.active-memory-manager.policies", "scheduler.allowed-imports", "scheduler.http.routes"),
        *("scheduler.preload", "scheduler.preload-argv"),
        *("worker.http.routes", "worker.preload", "worker.preload-argv"),
    )
} | {"array.backend", "dataframe.backend"}
HOSTILE: tuple[Any, ...] = (
    "subprocess.Popen",
    "os",
    "evil",
    "/tmp/evil.py",
    "http://host/evil.py",
    "1evil.py",
    "tcp\n",
    ["subprocess.Popen"],
    [{"class": "subprocess.Popen", "args": ["true"]}],
    {"class": "subprocess.Popen"},
    {},
)


def settings_of_dask() -> set[str]:
    """Return each setting that Dask's default files name, and each that its source does."""
    names, named = set(defaults()), re.compile(r'"((?:distributed|scheduler|worker|comm)\.[a-z0-9.-]+)"')
    for package in (dask, distributed):
        for file in Path(package.__file__).parent.rglob("*.py"):
            if "tests" not in file.parts:
                names |= set(named.findall(file.read_text()))
    return names


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def test_dask_has_the_settings_whose_values_it_imports() -> None:
    names = settings_of_dask()
    assert names > IMPORTED and len(names) > 150
    assert not IMPORTED & {f"distributed.{name}" for name in TEXT_OF}


@pytest.mark.parametrize("hostile", HOSTILE, ids=repr)
def test_no_setting_takes_what_dask_could_import(hostile: Any) -> None:
    for name in settings_of_dask():
        below = name.removeprefix("distributed.")
        assert not is_plain(below, hostile), name
        assert [*plain_settings(nested(below, hostile))] == []  # of the recorder
        run = TRIAL.model_copy(update={"dask": nested(name, hostile)})
        assert hostile == defaults().get(name) or [*code_of(run)], name
        variant = TRIAL.resolved_scheduler.model_copy(update={"settings": nested(name, hostile)})
        run = TRIAL.model_copy(update={"resolved_scheduler": variant})
        assert hostile == defaults().get(name) or [*code_of(run)], name


@pytest.mark.parametrize("hostile", HOSTILE, ids=repr)
def test_record_and_twin_take_no_such_setting(hostile: Any) -> None:
    """A twin has the settings that the record's simulation has."""
    names = [name.removeprefix("distributed.") for name in sorted(settings_of_dask())]
    config = pd.DataFrame({"setting": names * 2, "value": json.dumps(hostile)})
    taken, left_out = _dask({"config": config})
    assert taken == {} and len(left_out) == len({*left_out}) > 10
    policies = "distributed.scheduler.active-memory-manager.policies"
    assert sum(policies in sentence for sentence in left_out) == 1


def test_defaults_are_plain_and_are_taken_when_they_are_changed() -> None:
    for name, text in TEXT_OF.items():
        default = defaults()[f"distributed.{name}"]
        assert is_plain(name, default) and is_plain(name.replace("-", "_"), None), name
        assert not isinstance(default, str) or re.fullmatch(text, default)
    changed = {"scheduler.work-stealing": False, "comm.timeouts.connect": "90s", "comm.retry.count": 3}
    config = pd.DataFrame({"setting": [*changed], "value": [json.dumps(value) for value in changed.values()]})
    taken, left_out = _dask({"config": config})
    assert not left_out and taken["distributed"]["comm"] == {
        "timeouts": {"connect": "90s"},
        "retry": {"count": 3},
    }


def free_texts(kind: Any, path: str) -> Iterator[str]:
    """Yield where below a type a file may have any text, or anything. A mapping stands for its keys."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield from free_texts(field.annotation, f"{path}.{name}")
    elif kind in (str, Any):
        yield path
    elif get_origin(kind) is not Literal:
        for inner in get_args(kind):
            yield from free_texts(inner, path)


def test_each_text_of_a_trial_is_known() -> None:
    """A new one is code, unless something else than its type says what it may be: then name it here."""
    code = {"dask", "spark", "workload.source", "workload.params", "scheduler.command"}
    code |= {f"resolved_scheduler.{name}" for name in ("command", "preload", "settings")}
    plain = {
        "workload.name": "one of dasklab's, unless it has a source",
        "packages": "names and versions of the lab's own pins",
        "layout": "two numbers",
        "faults.host": "a host of the trial",
        **dict.fromkeys(("links", "links.peer", "guests", "nics"), "hosts of the trial"),
    }
    texts = {text.removeprefix(".") for text in free_texts(Settings, "")}
    assert texts | {*free_texts(ResolvedScheduler, "resolved_scheduler")} == code | set(plain)
