"""What failed, and what a client ended, in words."""

from __future__ import annotations

import pytest
from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.show.failures import failure_sentences

from tests.unit.dasklab.breakdown.timelines import make_repeat


@pytest.mark.parametrize(
    ("failures", "sentence"),
    [
        (Failures(retried=[(4.0, 2)]), "A client retried 2 tasks, the first 4.0 s after the start."),
        (Failures(cancelled=[(10.02, 1)]), "A client cancelled 1 task, 10.0 s after the start."),
        (Failures(cancelled=[(12.0, 1)]), ""),
    ],
    ids=["retry", "last act of the block", "after the block"],
)
def test_what_a_client_requests_is_said(failures: Failures, sentence: str) -> None:
    """The block lasts until 10 s."""
    assert [*map(str, failure_sentences(make_repeat(), failures))] == [*filter(None, [sentence])]
