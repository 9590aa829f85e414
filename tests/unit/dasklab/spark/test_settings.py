"""Spark in place of Dask: what its trials install, and the parameters of its workloads."""

from __future__ import annotations

import pytest
from dasklab.model.experiments import experiment
from dasklab.model.settings.workloads import parameters
from dasklab.paths import WORKLOADS
from dasklab.running.plan.trials import plan
from dasklab.spark import settings

from tests.unit.dasklab.conftest import SETUP

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


def test_only_trials_with_spark_install_pyspark() -> None:
    _, spark = experiment.load("spark")
    trials = plan("spark", spark, SETUP)
    environments = {"dask": {}, "spark": {"pyspark": settings.PYSPARK_VERSION}}
    assert {trial.engine for trial in trials} == set(environments)
    assert all(trial.environment == environments[trial.engine] for trial in trials)
    assert all(trial.engine == "dask" for trial in trials if trial.baseline or trial.null)
    assert all(trial.spark == {BROADCAST: -1} for trial in trials if trial.engine == "spark")


@pytest.mark.parametrize("name", settings.spark_workloads())
def test_workload_on_spark_has_parameters_and_defaults_of_the_one_on_dask(name: str) -> None:
    spark, dask = ((WORKLOADS / f"{start}{name}.py").read_text() for start in (settings.PREFIX, ""))
    assert set(parameters(spark)) <= set(parameters(dask))
    for parameter in parameters(spark):
        [default] = [part for part in dask.split("(", 1)[1].split(",") if f" {parameter}:" in part]
        assert default.partition(")")[0].strip() in spark
