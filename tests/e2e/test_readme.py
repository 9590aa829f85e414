"""The README's commands, as they are written, on a fresh machine with nothing but Python and apt.

`benchmarks/newcomer.py` also builds the lab there: containers in a container.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fresh_machine import MISSING
from tests.newcomer import Newcomer

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.geteuid() != 0, reason="another root file system is mounted: only as root"),
    pytest.mark.skipif(bool(MISSING), reason=f"missing: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    newcomer = Newcomer(tmp_path_factory.mktemp("fresh") / "root")
    newcomer.install()
    yield newcomer
    newcomer.machine.remove()


def test_program_prints_its_explanation(newcomer: Newcomer) -> None:
    printed = newcomer.explain_own_program()
    assert "It took " in printed and "Thread time: " in printed and "critical path" in printed


def test_cluster_is_recorded_explained_and_predicted(newcomer: Newcomer) -> None:
    printed = newcomer.explain_own_cluster()
    assert "Recording tcp://scheduler:8786" in printed and "Traceback" not in printed
    assert "Thread time: " in printed and "tasks that wait" in printed
    assert "workers=12" in printed


def test_capture_is_decoded(newcomer: Newcomer) -> None:
    printed = newcomer.decode_own_capture()
    assert "compute-task" in printed and "no problem found" in printed and "Traceback" not in printed
