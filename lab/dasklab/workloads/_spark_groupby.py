"""groupby.py on Spark: partial sums per partition, then a shuffle that brings equal keys together."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from typing import Any

from _harness import Job
from _spark import main


def prepare(spark: Any, rows: int = 20_000_000, partitions: int = 60, groups: int = 100_000) -> Job:
    """Row i has key i modulo ``groups`` and value 1. The answer is the sum of the keys of all rows."""
    import numpy as np
    from pyspark.sql.functions import col, lit
    from pyspark.sql.functions import sum as total

    per = rows // partitions
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    numbers = spark.range(0, per * partitions, 1, partitions)
    frame = numbers.select((col("id") % groups).alias("key"), lit(1).cast("long").alias("value")).cache()
    frame.count()
    keys = np.arange(per * partitions) % groups

    def run(number: int) -> float:
        added = frame.select("key", (col("value") + number).alias("value"))
        sums = added.groupBy("key").agg(total("value").alias("value")).toArrow()
        return float((sums["key"].to_numpy() * sums["value"].to_numpy()).sum()) / (1 + number)

    return Job(run, expected=float(keys.sum()), tolerance=1e-9 * float(keys.sum()))


if __name__ == "__main__":
    main(prepare)
