"""What does the network do to a Dask cluster? Record, explain, predict; or measure in a lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from dasklab.records.session import Session

__all__ = ["record"]


def record(
    client: Client, folder: str | Path, *, code: bool = True, keys: str = "plain", max_mb: float = 1000
) -> Session:
    """Record what a running Dask cluster does, from any client.

        with dasklab.record(client, "run/") as run:
            result = df.groupby("a").b.mean().compute()
        run.explain()
        run.whatif(workers=12)

    Nothing is installed in the cluster, and nothing remains there afterwards. An asynchronous client uses
    ``async with``. Later, ``dasklab explain run/`` reads the folder again.

    Args:
        client: a connected client.
        folder: where to write; it must be new or empty.
        code: whether to keep which lines of the user's code start computations: file, number and text.
            Without it, lines only have numbers, and no file paths and no texts of errors are kept.
        keys: ``plain``, or ``hash`` to record hashes instead of keys and of all names that you chose. This
            implies ``code=False``.

        max_mb: where the tables end, in MB on disk. Counting goes on, and ``record.json`` says until when
            the record is complete.

    Raises:
        LabError: on entering, if the folder is not empty or the cluster is being recorded already.
    """
    from dasklab.records.session import Session

    def explain(folder: Path) -> Any:
        from dasklab.breakdown.show.notebook import explain_folder  # later: what it imports takes memory

        return explain_folder(folder)

    def whatif(folder: Path, seeds: int, changes: dict[str, Any]) -> Any:
        from dasklab.predict.record_whatif import whatif_folder

        return whatif_folder(folder, seeds, changes)

    def scale(folder: Path, name: str, amounts: tuple[float, ...], seeds: int) -> Any:
        from dasklab.predict.record_scale import scale_folder

        return scale_folder(folder, name, amounts, seeds)

    return Session(client, folder, code, keys, explain, whatif, scale, max_mb)
