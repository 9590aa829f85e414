"""What failed, and what a client ended, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dasklab.breakdown.answers.facts.failures import Failures, TaskAttempt
from dasklab.breakdown.show.failures import failure_sentences

from tests.unit.dasklab.breakdown.timelines import make_repeat, task


@pytest.mark.parametrize(
    ("failures", "sentence"),
    [
        (
            Failures(retried=[(4.0, 2)]),
            "A client retried 2 tasks; the scheduler began to do so 4.0 s after the start.",
        ),
        (
            Failures(cancelled=[(10.02, 1)]),
            "A client cancelled 1 task; the scheduler did so 10.0 s after the start.",
        ),
        (Failures(cancelled=[(12.0, 1)]), ""),
    ],
    ids=["retry", "last act of the block", "after the block"],
)
def test_what_a_client_requests_is_said(failures: Failures, sentence: str) -> None:
    """The block lasts until 10 s."""
    assert [*map(str, failure_sentences(make_repeat(), failures))] == [*filter(None, [sentence])]


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        (["KeyError(4)", "KeyError(4)"], "KeyError(4)"),
        (["KeyError(4)", "KeyError(5)"], "KeyError"),
        (["KeyError(4)", "OSError()", "OSError()"], "OSError and KeyError"),
        (["KeyError(4)", "<no repr>"], "KeyError and other errors"),
    ],
)
def test_different_errors_do_not_become_one(errors: list[str], text: str) -> None:
    attempts = [
        TaskAttempt(f"f-{n}", "f", "worker-1", 1.0, 1.0, error, False) for n, error in enumerate(errors)
    ]
    (sentence,) = map(str, failure_sentences(make_repeat(), Failures(attempts)))
    assert f" failed with {text} on worker-1" in sentence


def test_failures_of_another_client_say_so() -> None:
    """Both clients have tasks of one kind that fail."""
    attempts = [TaskAttempt(key, "f", "worker-1", 2.0, 1.0, "OSError()", False) for key in ("f-1", "f-2")]
    introduced = [{"graph": n, "key": f"f-{n}", "span": "", "client": f"Client-{n}"} for n in (1, 2)]
    tasks = [task(key, "worker-1", 1, n, n + 1.0) for n, key in enumerate(("f-1", "f-2"), start=1)]
    repeat = replace(make_repeat(tasks, tables={"introduced": introduced}), client="Client-1")
    own, foreign = sorted(map(str, failure_sentences(repeat, Failures(attempts))), key=len)
    assert own.startswith("1 attempt of 1 task (f) failed with OSError() on worker-1")
    assert foreign.startswith("1 attempt of 1 task of another client (f) failed with OSError() on worker-1")
