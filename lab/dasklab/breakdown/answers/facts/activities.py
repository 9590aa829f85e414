"""What event loops that were late, and tasks that waited, were doing: what most sampled stacks agree on."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from dask.utils import key_split
from pydantic import Field

from dasklab.breakdown.model.causes import LAG
from dasklab.breakdown.model.evidence import StackSample
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat

MOST = 0.7  # share of the samples, and of their time, from which on they agree
LOCK_SHARE = 1 / 3  # whoever holds a lock often waits, too, for what it protects
LEAST_SAMPLES, LEAST_S = 3, 0.3
LEAST_SHARE = 0.03  # of the repeat
BLOCKED_S = 0.03  # a shorter busy interval of an event loop is everyday work
LEAST_TASK_S = 0.2  # of shorter tasks, samples show hardly more than the end
FRAME = re.compile(r"(?P<function>.*) \((?P<path>.*):\d+\)")
STANDARD_LIBRARY = re.compile(r"/python3[.\d]*/(?!(?:site|dist)-packages/)|^<frozen ")
NAMELESS = re.compile(r"(?:\.<locals>)?\.<(?:listcomp|dictcomp|setcomp|genexpr|lambda)>$")
RUN = re.compile(r"^run \(.*-packages/distributed/worker\.py:")
DASK = re.compile(r"-packages/(?:dask|distributed|cloudpickle|tornado|toolz)/|(?:^|/)dasklab/records/")


@dataclass(frozen=True)
class SampledActivity:
    """What samples of an event loop, or of tasks of one kind, agree on."""

    place: Annotated[str, Field(description="Process; empty where tasks ran on several.")]
    kind: Annotated[str, Field(description="Kind of the tasks; empty of an event loop.")]
    reason: Annotated[str, Field(description="As in the table stacks: blocked, waiting or held.")]
    activity: Annotated[str, Field(description="As in the table stacks; empty if none has a name.")]
    name: Annotated[str, Field(description="Package that is imported, or class of a lock.")]
    code: Annotated[str, Field(description="Innermost function that is none of Python's or Dask's.")]
    seconds: Annotated[float, Field(description="For about how long the samples stand.")]
    agree: Annotated[int, Field(description="Number of samples that show it.")]
    samples: int
    start_s: Annotated[float, Field(description="Of the first sample, since the start of the repeat.")]
    stop_s: Annotated[float, Field(description="Of the last sample.")]


def activities(repeat: Repeat) -> list[SampledActivity]:
    """Return what loops and tasks of a repeat were doing, what took longest first."""
    if not repeat.evidence.stacks:  # most records: the lengths of their tasks are not needed
        return []
    groups: defaultdict[tuple[int, str, str], list[StackSample]] = defaultdict(list)
    lengths = _typical_lengths(repeat)
    for sample in repeat.evidence.stacks:
        kind = str(key_split(sample.key)) if sample.key else ""
        is_short = sample.reason == "waiting" and lengths.get(kind, 0.0) < LEAST_TASK_S
        if repeat.start < sample.time < repeat.stop and not is_short:
            # a loop that is late and one that nobody else could interrupt are the same loop
            reason = sample.reason if kind else "blocked"
            groups[sample.node if not kind else -1, kind, reason].append(sample)
    agreed = [_agreed(repeat, kind, reason, samples) for (_, kind, reason), samples in groups.items()]
    least_s = max(LEAST_S, LEAST_SHARE * repeat.makespan)
    return sorted(
        (activity for activity in agreed if activity is not None and activity.seconds > least_s),
        key=lambda activity: -activity.seconds,
    )


def lag_activity(repeat: Repeat, path: Intervals) -> str:
    """Return what blocked event loops for most of the time for which the path waited for them, as a word.

    Empty where it was several things, or nothing that has a word.
    """
    lag = path.select(path.is_cause(LAG))
    blocked_s: defaultdict[str, float] = defaultdict(float)
    for activity in activities(repeat):
        if not activity.kind and activity.activity:
            own = lag.select(lag.place == repeat.node(activity.place))
            blocked = repeat.blocked(repeat.node(activity.place), BLOCKED_S)
            blocked_s[activity.activity] += float(blocked.within(own.place, own.start, own.stop).sum())
    word = max(blocked_s, key=blocked_s.__getitem__, default="")
    return word if word and blocked_s[word] > MOST * float(lag.seconds.sum()) else ""


def _typical_lengths(repeat: Repeat) -> dict[str, float]:
    """Return the median length of the tasks of each kind."""
    kinds = np.array(repeat.prefixes, object)[repeat.tasks.key]
    lengths = pd.Series(repeat.tasks.stop - repeat.tasks.start).groupby(kinds).median()
    return {str(kind): float(length) for kind, length in lengths.items()}


def _agreed(repeat: Repeat, kind: str, reason: str, samples: Sequence[StackSample]) -> SampledActivity | None:
    """Return what most samples show: a word, else a function; None if they do not agree or are few."""
    if len(samples) < LEAST_SAMPLES and not any(sample.reason == "held" for sample in samples):
        return None
    locks = [sample for sample in samples if sample.activity == "lock"]
    if len(locks) >= max(LEAST_SAMPLES, LOCK_SHARE * len(samples)):
        own = locks
    else:
        (word, name), _ = Counter((sample.activity, sample.name) for sample in samples).most_common(1)[0]
        own = [sample for sample in samples if (sample.activity, sample.name) == (word, name)]
    if not own[0].activity:
        code, _ = Counter(own_code(sample.frames) for sample in samples).most_common(1)[0]
        own = [sample for sample in own if code and own_code(sample.frames) == code]
    if not own or (own is not locks and not _are_most(own, samples)):
        return None
    places = {repeat.places.nodes[sample.node] for sample in own}
    codes, names = (
        {item for item in items if item}
        for items in ((own_code(sample.frames) for sample in own), (sample.name for sample in own))
    )
    return SampledActivity(
        place=places.pop() if len(places) == 1 else "",
        kind=kind,
        reason=reason,
        activity=own[0].activity,
        name=names.pop() if len(names) == 1 else "",
        code=codes.pop() if len(codes) == 1 else "",
        seconds=(not kind and _blocked_s(repeat, own[0].node)) or sum(sample.seconds for sample in samples),
        agree=len(own),
        samples=len(samples),
        start_s=min(sample.time for sample in own) - repeat.start,
        stop_s=max(sample.time for sample in own) - repeat.start,
    )


def _blocked_s(repeat: Repeat, node: int) -> float:
    """Return for how long an event loop was busy for long at a time; 0 if that was not recorded."""
    ends = np.array([repeat.start]), np.array([repeat.stop])
    return float(repeat.blocked(node, BLOCKED_S).within(np.array([node]), *ends)[0])


def _are_most(own: Sequence[StackSample], samples: Sequence[StackSample]) -> bool:
    own_s, all_s = (sum(sample.seconds for sample in some) for some in (own, samples))
    return len(own) >= MOST * len(samples) and own_s >= MOST * all_s


def own_code(frames: Sequence[str]) -> str:
    """Return the innermost function of a stack that is none of Python's own or of Dask's, with its file.

    Else ``client.run``, if that called it. Empty if there is none, or where no files were recorded, as with
    code=False.
    """
    for text in reversed(frames):
        frame = FRAME.fullmatch(text)
        if frame and not STANDARD_LIBRARY.search(frame["path"]) and not DASK.search(frame["path"]):
            function = NAMELESS.sub("", frame["function"]).rpartition("<locals>.")[2]
            return f"{function} ({frame['path'].rpartition('/')[2]})"
    return "client.run" if any(map(RUN.search, frames)) else ""
