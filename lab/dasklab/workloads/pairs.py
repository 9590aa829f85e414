"""A bag of Python objects: all pairs of numbers, of which those in ascending order are counted.

Each partition is combined with every other. The work holds the interpreter, so threads of one process do not
help.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from _harness import Job, main
from distributed import Client


def shifted(value: int, by: int) -> int:
    """Return a number that differs between repeats, so that no earlier result can be reused."""
    return value + by


def ordered(pair: tuple[int, int]) -> bool:
    return pair[0] < pair[1]


def prepare(client: Client, numbers: int = 5_000, partitions: int = 12) -> Job:
    """The answer is the number of ascending pairs of n numbers: n (n - 1) / 2."""
    import dask.bag as db

    def run(number: int) -> float:
        bag = db.range(numbers, npartitions=partitions).map(shifted, by=number)
        return float(bag.product(bag).filter(ordered).count().compute())

    return Job(run, expected=numbers * (numbers - 1) / 2)


if __name__ == "__main__":
    main(prepare)
