"""A bag of Python objects: every number is paired with every other, and pairs are kept that are in order.

Each partition meets each, and the work holds the interpreter: threads of one process do not help.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from _harness import Job, main
from distributed import Client


def shifted(value: int, by: int) -> int:
    """A new number per run, so that nothing of the last run can answer for this one."""
    return value + by


def ordered(pair: tuple[int, int]) -> bool:
    """The smaller one first?"""
    return pair[0] < pair[1]


def prepare(client: Client, numbers: int = 5_000, partitions: int = 12) -> Job:
    """Of n numbers n (n - 1) / 2 pairs are in order."""
    import dask.bag as db

    def run(number: int) -> float:
        bag = db.range(numbers, npartitions=partitions).map(shifted, by=number)
        return float(bag.product(bag).filter(ordered).count().compute())

    return Job(run, expected=numbers * (numbers - 1) / 2)


if __name__ == "__main__":
    main(prepare)
