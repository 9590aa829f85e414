"""Every right of every method that writes: without it, the answer is 403."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from minipve.access.permissions import BESIDES_PATH

from tests.contract import rights
from tests.contract.endpoint import Endpoint

CASES = rights.cases()


@pytest.fixture(scope="module")
def sweeper(lxc: None, start: Callable[..., Endpoint]) -> rights.Sweeper:
    return rights.Sweeper(start("--nodes", "2"))


def test_table_has_exactly_the_methods_that_write() -> None:
    assert sorted(BESIDES_PATH) == rights.writing_methods()


def test_every_method_that_writes_needs_a_right() -> None:
    """Otherwise anybody could call it, and nothing would be withheld here."""
    assert {*rights.writing_methods()} - {(case.verb, case.path) for case in CASES} == {rights.PUBLIC}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_the_right_the_answer_is_403(sweeper: rights.Sweeper, case: rights.Case) -> None:
    assert sweeper.fault(case) is None
