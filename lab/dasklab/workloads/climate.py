"""A typical xarray computation: monthly anomalies of a field over many years, squared.

The mean over years needs the fields of one month from all years; the anomalies are computed where the fields
are.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import dask.array as da
from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, years: int = 40, height: int = 360, width: int = 720, tiles: int = 2) -> Job:
    """The field of month m in year y is y + m everywhere, so the answer is the variance of the years."""
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
