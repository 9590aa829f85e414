"""A cluster that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import LocalCluster

from tests.contract.record.clusters import LOCAL


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(**LOCAL) as cluster:
        yield cluster
