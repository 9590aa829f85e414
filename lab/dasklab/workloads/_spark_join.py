"""join.py on Spark: two tables are joined on a column by which neither is sorted, so both are shuffled.

A table smaller than ``spark.sql.autoBroadcastJoinThreshold`` is broadcast instead; -1 disables that.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from typing import Any

from _harness import Job
from _spark import main


def prepare(spark: Any, rows: int = 5_000_000, partitions: int = 30) -> Job:
    """Both tables have each key once, in a different order. The answer is the sum of the keys' squares."""
    import numpy as np
    from pyspark.sql.functions import col
    from pyspark.sql.functions import sum as total

    length = rows // partitions * partitions
    spark.conf.set("spark.sql.shuffle.partitions", partitions)

    def table(step: int, name: str) -> Any:
        keys = spark.range(0, length, 1, partitions).select((col("id") * step % length).alias("key"))
        frame = keys.select("key", col("key").cast("double").alias(name)).cache()
        frame.count()
        return frame

    # With a step that has no common divisor with the number of rows, every key occurs once.
    step = next(step for step in range(length // 3, length) if np.gcd(step, length) == 1)
    left, right = table(1, "left"), table(step, "right")

    def run(number: int) -> float:
        shifted = left.select("key", (col("left") + number).alias("left"))
        joined = shifted.join(right, "key")
        return float(joined.agg(total((col("left") - number) * col("right"))).first()[0])

    expected = float((np.arange(length, dtype=float) ** 2).sum())
    return Job(run, expected=expected, tolerance=1e-9 * expected)


if __name__ == "__main__":
    main(prepare)
