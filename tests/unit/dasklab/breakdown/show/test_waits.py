"""Which events, queues and variables are named."""

from __future__ import annotations

from dasklab.breakdown.answers.facts.facts import PrimitiveUse
from dasklab.breakdown.show.waits import wait_sentences

from tests.unit.dasklab.breakdown.timelines import make_repeat


def test_what_somebody_has_to_set_is_named_and_locks_are_left_to_the_advice() -> None:
    uses = [
        PrimitiveUse("Queue", "parts", 3.0, ""),
        PrimitiveUse("Lock", "file", 2.0, "write"),
        PrimitiveUse("Event", "go", 0.01, ""),
    ]
    [sentence] = wait_sentences(make_repeat(), uses)
    assert sentence.text == "Tasks waited for the Queue 'parts', 3.0 thread-seconds in all."
    assert sentence.seconds == 1.5
