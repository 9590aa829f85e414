"""Role spark: Java, for trials on Spark. Until a trial on Spark ran, the lab's hosts have none."""

from __future__ import annotations

from typing import Any

import pytest

testinfra_hosts = ["ansible://lab"]


def test_java_is_installed(host: Any, requested: dict[str, Any]) -> None:
    if not host.exists("java"):
        pytest.skip("no trial on Spark has run on this host")
    version = requested.get("spark_jre", "openjdk-17-jre-headless").split("-")[1]
    assert f'version "{version}.' in host.run("java -version").stderr


def test_spark_itself_is_a_package_of_trials(host: Any) -> None:
    assert not host.file("/opt/spark").exists
    found = host.check_output("find /opt -maxdepth 6 -type d -name pyspark -path '*/site-packages/*'")
    assert all(path.startswith("/opt/dask-") for path in found.split())
