"""What people do with xarray: fields of many years, each month's mean taken off, what is left squared.

Means over years bring each month's field of every year together; the differences go back to where these are.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import dask.array as da
from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, years: int = 40, height: int = 360, width: int = 720, tiles: int = 2) -> Job:
    """The field of month m in year y is y + m everywhere, so the mean square is the variance of the years."""
    months = da.arange(12 * years, chunks=12, dtype=float)
    fields = da.zeros((1, height, width), chunks=(1, -(-height // tiles), -(-width // tiles)))
    data = ((months // 12 + months % 12)[:, None, None] + fields).persist()
    wait(data)

    def run(number: int) -> float:
        yearly = (data + number).reshape((years, 12, height, width))
        return float(((yearly - yearly.mean(axis=0)) ** 2).mean().compute())

    return Job(run, expected=(years**2 - 1) / 12, tolerance=1e-6 * years**2)


if __name__ == "__main__":
    main(prepare)
