"""A pytest fixture that records a test's Dask client and compares it with a stored baseline.

    def test_the_report_is_not_slower(client, dasklab_check):
        dasklab_check(client, lambda: sales.groupby("shop").amount.mean().compute())

``pytest --dasklab-update`` stores the records as the baseline of the test, ``--dasklab-add`` adds them to it:
from several sessions follows how much sessions differ. Without these options the test fails if its work is
slower, warns if that cannot be decided, and is skipped if it has no baseline. pytest loads this in every
environment that has dasklab, so it imports nothing large by itself.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distributed import Client

RUNS = 5
FOLDER = "dasklab-baselines"
SLOWER_PCT = 10.0
UPDATE = "pytest --dasklab-update stores a new baseline"


class UndecidedWarning(UserWarning):
    """Whether a test is slower than its baseline cannot be decided; the message says why."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fixture."""
    group = parser.getgroup("dasklab", "records of Dask clients (dasklab_check)")
    group.addoption("--dasklab-update", action="store_true", help="Store the records as new baselines.")
    group.addoption(
        "--dasklab-add", action="store_true", help="Add the records, a session, to the baselines."
    )
    group.addoption(
        "--dasklab-folder", default=FOLDER, metavar="FOLDER", help=f"Where baselines are; default: {FOLDER}."
    )
    group.addoption(
        "--dasklab-slower", type=float, default=SLOWER_PCT, metavar="PERCENT",
        help=f"How much longer counts as slower; default: {SLOWER_PCT:g}.",
    )  # fmt: skip


class Checker:
    """Records some work of a client and compares it with the baseline of a test."""

    def __init__(self, config: pytest.Config, name: str, folder: Path) -> None:
        """Prepare for a test.

        Args:
            name: of the test's baseline.
            folder: where the test's records go; it does not exist yet.
        """
        self.baseline = config.rootpath / config.getoption("dasklab_folder") / name
        self.add: bool = config.getoption("dasklab_add")
        self.update: bool = self.add or config.getoption("dasklab_update")
        self.limit_pct: float = config.getoption("dasklab_slower")
        self.folder = folder

    def __call__(self, client: Client, work: Callable[[], Any], runs: int = RUNS) -> None:
        """Record some runs of the work, after one that is not recorded, and compare them with the baseline.

        A test calls this once. It fails if the work is slower.
        """
        if not self.update and not self.baseline.exists():
            pytest.skip(f"{self.baseline} does not exist; pytest --dasklab-update stores it")
        records = self._record(client, work, runs)
        if self.update:
            self._store()
        else:
            self._compare(records)

    def _record(self, client: Client, work: Callable[[], Any], runs: int) -> list[Path]:
        import dasklab

        work()  # a first run imports and connects, which no later one does
        records = [self.folder / str(number) for number in range(1, runs + 1)]
        for path in records:
            with dasklab.record(client, path):
                work()
        return records

    def _store(self) -> None:
        draft = self.baseline.with_name(f"{self.baseline.name}.new")  # the old one stays until this is whole
        shutil.rmtree(draft, ignore_errors=True)
        if self.add and self.baseline.exists():
            shutil.copytree(self.baseline, draft)
        first = len(list(draft.iterdir())) + 1 if draft.exists() else 1
        for number, record in enumerate(sorted(self.folder.iterdir()), first):
            shutil.copytree(record, draft / str(number))
        shutil.rmtree(self.baseline, ignore_errors=True)
        draft.rename(self.baseline)

    def _compare(self, records: Sequence[Path]) -> None:
        from dasklab.breakdown.show.explain import explain
        from dasklab.comparison.check import Verdict, check
        from dasklab.errors import LabError, plain
        from dasklab.results.run import open_trial

        old = sorted(path for path in self.baseline.iterdir() if path.is_dir())
        try:
            before = [explain(open_trial(path)) for path in old]
        except LabError as error:
            pytest.fail(f"the baseline cannot be read: {error}; {UPDATE}", pytrace=False)
        result = check([explain(open_trial(path)) for path in records], before, self.limit_pct, UPDATE)
        if result.verdict is Verdict.SLOWER:
            pytest.fail(plain(result), pytrace=False)
        if result.verdict is Verdict.CANNOT_DECIDE:
            warnings.warn(plain(result), UndecidedWarning, stacklevel=3)


@pytest.fixture
def dasklab_check(request: pytest.FixtureRequest, tmp_path: Path) -> Checker:
    """Record some work of a client and compare it with the stored baseline of this test."""
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid).strip("-")
    return Checker(request.config, name, tmp_path / "dasklab-records")
