"""The workloads on a real Spark in one process: the right answer, and the format of the output file.

These tests need Java, and pyspark in the cache, where a trial with Spark leaves it: a test does not download
430 MB.
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
from dasklab.model.files import Timings
from dasklab.paths import WORKLOADS
from dasklab.spark.settings import PYSPARK_VERSION, spark_workloads

SMALL = {
    "groupby": ({"rows": 1000, "partitions": 3, "groups": 10}, sum(i % 10 for i in range(999))),
    "join": ({"rows": 1000, "partitions": 3}, sum(i * i for i in range(999))),
}
PATIENCE_S = 600
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a workload with pyspark laid over the environment that runs the tests."""
    wheelhouse = wheels.wheelhouse({"pyspark": PYSPARK_VERSION})
    if shutil.which("java") is None or not wheelhouse.exists():
        pytest.skip(
            f"Java, and pyspark {PYSPARK_VERSION} in {wheelhouse}: a trial with engine: spark brings it there"
        )
    folder = tmp_path_factory.mktemp("spark")
    for wheel in wheelhouse.glob("*.whl"):
        if wheel.name.startswith(("pyspark", "py4j")):
            zipfile.ZipFile(wheel).extractall(folder / "packages")
    for program in (folder / "packages" / "pyspark" / "bin").iterdir():
        program.chmod(0o755)
    (folder / "conf").mkdir()
    settings = {"ui.enabled": "false", "log.level": "ERROR", "driver.memory": "512m", "local.dir": folder}
    lines = (f"spark.{name} {value}\n" for name, value in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
    variables = {"PYTHONPATH": str(folder / "packages"), "SPARK_CONF_DIR": str(folder / "conf")}
    # In so short a run, optimizing compilation costs more than it saves.
    variables["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

    def workload(name: str, params: Any, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = ["--scheduler", "local[2]", "--params", json.dumps(params), "--workers", "0", *more]
        return subprocess.run(
            [sys.executable, str(WORKLOADS / f"_spark_{name}.py"), "--repeats", "1", *words],
            env={**os.environ, **variables, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    return workload


def test_every_workload_on_spark_is_tested() -> None:
    assert set(SMALL) == set(spark_workloads())


@pytest.mark.parametrize("name", SMALL)
def test_workload_returns_the_right_answer_in_the_same_format_as_on_dask(name: str, run: Run) -> None:
    params, expected = SMALL[name]
    setting = "spark.sql.shuffle.partitions"
    process = run(name, params, "--settings", setting, "--packages", "pyspark")
    assert process.returncode == 0, process.stderr
    timings = Timings.model_validate({"schema": 4, **json.loads(process.stdout)})
    assert timings.workload == name and timings.check is not None and timings.check.ok
    assert timings.check.expected == expected
    assert [sample.warmup for sample in timings.samples] == [True, False]
    assert all(sample.duration_s > 0 and (sample.transfer_bytes or 0) > 0 for sample in timings.samples)
    assert timings.config == {"client": {setting: "3"}}
    assert timings.packages == {"client": {"pyspark": PYSPARK_VERSION}}
    assert timings.versions["spark"] == PYSPARK_VERSION and timings.versions["java"]


def test_missing_executors_are_reported_in_the_last_line(run: Run) -> None:
    process = run("join", {}, "--workers", "1", "--timeout-s", "1")
    assert process.returncode == 4
    assert process.stderr.splitlines()[-1] == "0 executors are connected, 1 were requested"


def test_missing_master_is_reported_in_the_last_line(run: Run) -> None:
    process = run("join", {}, "--scheduler", "spark://127.0.0.1:1", "--timeout-s", "0.1")
    assert (process.returncode, process.stderr.splitlines()[-1]) == (
        4,
        "no master answers at spark://127.0.0.1:1",
    )


def test_reason_why_spark_does_not_start_is_in_the_last_line(run: Run) -> None:
    process = run("join", {}, PYSPARK_SUBMIT_ARGS="--driver-memory 100m pyspark-shell")
    assert process.returncode == 4
    assert "Insufficient driver memory" in process.stderr.splitlines()[-1]
