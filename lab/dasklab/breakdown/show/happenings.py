"""What a reader has to know of a record besides its time: what changed in the cluster, and what failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dasklab.breakdown.show.block import block_sentences
from dasklab.breakdown.show.capacity import capacity_sentences
from dasklab.breakdown.show.changes import changes
from dasklab.breakdown.show.clients import client_sentences
from dasklab.breakdown.show.failures import failure_sentences
from dasklab.breakdown.show.memory import memory_sentences

if TYPE_CHECKING:
    from dasklab.breakdown.show.explain import Explained


def happenings(record: Explained) -> Iterator[str]:
    """Return sentences about the repeat of middle length."""
    repeat = record.median_repeat
    yield from block_sentences(repeat)
    yield from capacity_sentences(repeat)
    yield from client_sentences(repeat)
    yield from failure_sentences(record.facts.failures, repeat.start, repeat.stop)
    yield from changes(repeat)
    yield from memory_sentences(repeat, record.facts.memory, record.facts.memory_thresholds)
