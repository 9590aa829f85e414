"""Spark's workloads on a real Spark, in one process: the right answer, and the form of the file.

It takes Java, and pyspark as a trial of Spark leaves it in the cache: a test does not download 430 MB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from dasklab import wheels
from dasklab.model.engines import VERSION, spark_workloads
from dasklab.model.files import Timings
from dasklab.paths import WORKLOADS

SMALL = {
    "groupby": ({"rows": 1000, "partitions": 3, "groups": 10}, sum(i % 10 for i in range(999))),
    "join": ({"rows": 1000, "partitions": 3}, sum(i * i for i in range(999))),
}
PATIENCE_S = 600
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a workload with pyspark laid over the environment that runs the tests."""
    wheelhouse = wheels.wheelhouse({"pyspark": VERSION})
    if shutil.which("java") is None or not wheelhouse.exists():
        pytest.skip(
            f"Java, and pyspark {VERSION} in {wheelhouse}: a trial with engine: spark brings it there"
        )
    folder = tmp_path_factory.mktemp("spark")
    for wheel in wheelhouse.glob("*.whl"):
        if wheel.name.startswith(("pyspark", "py4j")):
            zipfile.ZipFile(wheel).extractall(folder / "packages")
    for program in (folder / "packages" / "pyspark" / "bin").iterdir():
        program.chmod(0o755)
    (folder / "conf").mkdir()
    own = {"ui.enabled": "false", "log.level": "ERROR", "driver.memory": "512m", "local.dir": folder}
    lines = (f"spark.{name} {value}\n" for name, value in own.items())
    (folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
    told = {"PYTHONPATH": str(folder / "packages"), "SPARK_CONF_DIR": str(folder / "conf")}
    # For so short a run to compile well costs more than it spares.
    told["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

    def workload(name: str, params: Any, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = ["--scheduler", "local[2]", "--params", json.dumps(params), "--workers", "0", *more]
        return subprocess.run(
            [sys.executable, str(WORKLOADS / f"_spark_{name}.py"), "--runs", "1", *words],
            env={**os.environ, **told, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    return workload


def test_every_workload_is_tried_here() -> None:
    assert set(SMALL) == set(spark_workloads())


@pytest.mark.parametrize("name", SMALL)
def test_the_answer_is_right_and_told_as_dask_s_is(name: str, run: Run) -> None:
    params, expected = SMALL[name]
    setting = "spark.sql.shuffle.partitions"
    done = run(name, params, "--settings", setting, "--packages", "pyspark")
    assert done.returncode == 0, done.stderr
    told = Timings.model_validate({"schema": 3, **json.loads(done.stdout)})
    assert told.workload == name and told.check is not None and told.check.ok
    assert told.check.expected == expected
    assert [sample.warmup for sample in told.samples] == [True, False]
    assert all(sample.duration_s > 0 and (sample.transfer_bytes or 0) > 0 for sample in told.samples)
    assert told.config == {"client": {setting: "3"}}
    assert told.packages == {"client": {"pyspark": VERSION}}
    assert told.versions["spark"] == VERSION and told.versions["java"]


def test_executors_that_do_not_come_are_said_in_the_last_line(run: Run) -> None:
    done = run("join", {}, "--workers", "1", "--timeout-s", "1")
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == "0 executors are connected, 1 were asked for"


def test_a_master_that_is_not_there_is_said(run: Run) -> None:
    done = run("join", {}, "--scheduler", "spark://127.0.0.1:1", "--timeout-s", "0.1")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (4, "no master answers at spark://127.0.0.1:1")


def test_why_spark_does_not_start_is_said_in_the_last_line(run: Run) -> None:
    done = run("join", {}, PYSPARK_SUBMIT_ARGS="--driver-memory 100m pyspark-shell")
    assert done.returncode == 4
    assert "Insufficient driver memory" in done.stderr.splitlines()[-1]
