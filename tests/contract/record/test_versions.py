"""Another version of Dask: the role's second environment, and workloads that run in it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab import records, wheels
from dasklab.breakdown.model.causes import COMPUTE
from dasklab.breakdown.show.explain import explain
from dasklab.errors import LabError
from dasklab.model.files import Timings
from dasklab.model.settings.packages import OLDEST
from dasklab.results.run import Trial, open_trial
from jinja2 import Environment, StrictUndefined

from tests.contract.lab.test_variants import DASK, PATIENCE_S, Host

BOTH = {"dask": OLDEST, "distributed": OLDEST}
WORK: dict[str, dict[str, Any]] = {
    "array_study": {"size": 200, "chunk": 100},
    "groupby": {"rows": 1000, "partitions": 3, "groups": 10},
    "shuffle": {"parts": 4},
    "straggler": {"tasks": 10, "task_ms": 1},
    "transfer": {"source": "worker-1-1", "target": "worker-1-2", "mb": 1, "blocks": 3},
    "tree_reduction": {"leaves": 11, "size_kb": 1},
}


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the second environment by the role's own commands, over the environment of the tests."""
    try:
        wheelhouse = wheels.fetch(BOTH)
    except LabError as error:
        pytest.skip(f"the wheels of Dask {OLDEST} are not there and cannot be downloaded: {error}")
    folder = tmp_path_factory.mktemp("packages") / "dask"
    variables = {"dask_packages_venv": folder, "dask_venv": sys.prefix, "dask_python": sys.executable}
    for task in yaml.safe_load((DASK / "tasks" / "packages_install.yml").read_text()):
        if task["name"] in ("Create virtual environment", "Install Python packages"):
            words = task["ansible.builtin.command"]["argv"]
            templates = [Environment(undefined=StrictUndefined).from_string(word) for word in words]
            argv = [template.render(variables) for template in templates]
            subprocess.run(argv, cwd=wheelhouse, check=True)
    pinned = Path(sysconfig.get_path("purelib"))
    [site_packages] = folder.glob("lib/*/site-packages")
    (site_packages / "pins.pth").write_text(f"{pinned}\n")
    return folder


@pytest.fixture(scope="module")
def documents(
    second: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    """Run workloads of every kind on a cluster of that version, started by the role's programs."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "settings").mkdir()
    host = Host(folder)
    program = str(second / "bin" / "python")
    python = {"DASKLAB_PYTHON": program}
    layout = {"DASKLAB_PROCESSES": "2", "DASKLAB_THREADS": "1", "DASKLAB_WORKER": "dask"}
    with (
        host.running("dasklab_scheduler.sh.j2", str(host.port), str(folder / "scheduler.json"), **python),
        host.running("dasklab_workers.sh.j2", **layout, **python),
    ):
        more = ["--packages", "dask,distributed", "--record"]
        yield (
            folder,
            {
                name: host.workload(name, params, 2, program, [*more, str(folder / name / "record")])
                for name, params in WORK.items()
            },
        )


def test_every_process_uses_the_requested_version(documents: Any) -> None:
    for document in documents[1].values():
        assert document["packages"] == dict.fromkeys(
            ("client", "scheduler", "worker-1-1", "worker-1-2"), BOTH
        )
        assert document["versions"]["dask"] == OLDEST
        assert document["versions"]["numpy"]  # from the pinned environment
        assert document["check"]["ok"]


def test_records_of_another_version_are_explained(documents: Any) -> None:
    folder, by_workload = documents
    trial = folder / "array_study"
    Trial(trial).write(Timings.model_validate(by_workload["array_study"]))
    frames = records.load(trial)
    tasks = frames["tasks"]
    stages = ["decided_s", "sent_s", "arrived_s", "executing_s", "start_s", "stop_s", "done_s", "reported_s"]
    assert len(tasks) > 20
    assert tasks[stages].notna().all(axis=None)
    assert (frames["fetches"].status == "OK").any()
    assert frames["repeats"].lost.eq(0).all()
    explained = explain(open_trial(trial))
    assert explained.summary.by_cause[COMPUTE] > 0
    assert sum(explained.summary.breakdown.values()) == pytest.approx(explained.summary.makespan_s, rel=1e-3)


def test_client_of_another_version_cannot_join(second: Path, tmp_path: Path) -> None:
    """A scheduler does not understand the messages of another version, so all processes need the same."""
    (tmp_path / "settings").mkdir()
    host = Host(tmp_path)
    python = {"DASKLAB_PYTHON": f"{second}/bin/python"}
    layout = {"DASKLAB_PROCESSES": "1", "DASKLAB_THREADS": "1", "DASKLAB_WORKER": "dask"}
    with (
        host.running("dasklab_scheduler.sh.j2", str(host.port), str(tmp_path / "scheduler.json"), **python),
        host.running("dasklab_workers.sh.j2", **layout),
        pytest.raises((AssertionError, subprocess.TimeoutExpired)),
    ):
        host.workload("array_study", {"size": 200, "chunk": 100}, 1, timeout_s=PATIENCE_S / 2)
