"""Tell the computations of a record apart: each compute, persist, or batch of submits is an operation.

An operation is one graph, or several that the same line of the user's code sent one after the other, as a
loop does that submits tasks, whether or not it waits for each. It begins when Dask's client received its
first graph, and ends when the call that waited for its results returned; without such a call, when the
scheduler had handled its last task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import NONE, Floats, floats, positions
from dasklab.breakdown.model.repeat import INSIDE_TASKS, Repeat
from dasklab.records.assemble import texts

BATCH_S = 0.2  # a line whose client does other things for longer between two graphs begins an operation


@dataclass(frozen=True)
class Operation:
    """A computation of a record.

    Attributes:
        span: names of its tasks' spans, if they have any.
        code: the user's line that sent it: file, number, text; empty where it is unknown.
        start, stop: on the record's clock.
        tasks: number of tasks that its graphs introduced.
        is_foreign: whether another client than the recorded one sent it.
    """

    number: int
    span: str
    code: tuple[str, int, str]
    start: float
    stop: float
    tasks: int
    is_foreign: bool = False

    @property
    def title(self) -> str:
        """What a reader recognises: the span, the text of the line, or where it is."""
        file, line, text = self.code
        name = self.span or text or (f"{file}:{line}" if file else f"operation {self.number}")
        return f"{name} of another client" if self.is_foreign else name


def operations(repeat: Repeat, graphs: pd.DataFrame, introduced: pd.DataFrame) -> list[Operation]:
    """Return the operations of a repeat in order.

    Args:
        graphs: rows of the table of that name, on the repeat's clock.
        introduced: which graph introduced which key.
    """
    graphs = graphs[~graphs.client.str.startswith(INSIDE_TASKS)].sort_values("begin_s", kind="stable")
    spans = introduced[introduced.span != ""].groupby("graph").span.first()
    sizes = introduced.groupby("graph").size()
    graphs = graphs.assign(
        span=texts(graphs.graph.map(spans)), size=graphs.graph.map(sizes).astype(float).fillna(0.0)
    )
    handled = _handled(repeat, graphs, introduced)
    batches = _batches(repeat, graphs)
    ends = [float(handled.reindex(batch.graph).max()) for batch in batches]
    has_recorded = bool(graphs.is_recorded.any())
    return [
        Operation(
            number=number,
            span=str(batch.span.iloc[0]),
            code=_code(batch.iloc[0]),
            start=float(batch.begin_s.min()),
            stop=_returned(repeat, float(batch.begin_s.min()), ends[number - 1], ends),
            tasks=int(batch["size"].sum()),
            is_foreign=has_recorded and not bool(batch.is_recorded.iloc[0]),
        )
        for number, batch in enumerate(batches, start=1)
    ]


def _handled(repeat: Repeat, graphs: pd.DataFrame, introduced: pd.DataFrame) -> pd.Series[float]:
    """Return for each graph when the scheduler had handled its last task, at the earliest its arrival."""
    code = positions(pd.Index(repeat.keys), introduced.key)
    last = np.full(len(repeat.keys) + 1, np.nan)
    order = repeat.tasks.handled_order
    last[repeat.tasks.key[order]] = repeat.tasks.handled[order]
    stop = pd.Series(last[np.where(code == NONE, len(repeat.keys), code)], introduced.index)
    stops = stop.groupby(introduced.graph).max()
    return stops.reindex(graphs.graph).fillna(graphs.set_index("graph").received_s)


def _batches(repeat: Repeat, graphs: pd.DataFrame) -> list[pd.DataFrame]:
    """Group graphs that the same line of a client sent one after the other; in the order of the groups."""
    graphs = graphs.sort_values(["client", "begin_s"], kind="stable")
    free_s = graphs.begin_s - np.maximum(graphs.sent_s.shift(), _last_return(repeat, floats(graphs.begin_s)))
    code = texts(graphs.code) + texts(graphs.file) + graphs.line.astype(float).fillna(0.0).astype(str)
    follows = (
        (code == code.shift())
        & (code != "0.0")
        & (graphs.client == graphs.client.shift())
        & (graphs.span == graphs.span.shift())
        & (free_s < BATCH_S)
    )
    batches = [batch for _, batch in graphs.groupby((~follows).cumsum())]
    return sorted(batches, key=lambda batch: float(batch.begin_s.iloc[0]))


def _last_return(repeat: Repeat, time: Floats) -> Floats:
    """Return when the last call had returned by some times; minus infinity before the first one."""
    returned = np.sort(repeat.calls.of_kind("sync")[1])
    return np.append(returned, -np.inf)[np.searchsorted(returned, time, side="right") - 1]


def _code(row: pd.Series) -> tuple[str, int, str]:
    if not isinstance(row.file, str) or not row.file:
        return "", 0, ""
    return row.file, int(row.line), str(row.code)


def _returned(repeat: Repeat, started: float, handled: float, ends: Sequence[float]) -> float:
    """Return when the call that waited for an operation returned.

    Args:
        ends: when the last tasks of all operations were handled. A call waits for the one that ended last.
    """
    start, stop = repeat.calls.of_kind("sync")
    waits = stop[(stop >= handled) & (start <= handled) & (stop > started)]
    returned = float(waits.min()) if len(waits) else max(started, handled)
    waits_for_another = any(handled < end <= returned for end in ends)
    return max(started, handled) if waits_for_another else returned


def total(operations: Sequence[Operation], actor_calls: pd.DataFrame, repeat: Repeat) -> tuple[float, float]:
    """Return when the first operation, scatter or call of an actor began, and the last ended.

    All of the repeat if there is none, or if they end where they begin, as in a record that was cut off.
    """
    scattered = zip(*(times.tolist() for times in repeat.calls.of_kind("scatter")), strict=True)
    acted = zip(actor_calls.start_s.tolist(), actor_calls.stop_s.tolist(), strict=True)
    spans = [*((operation.start, operation.stop) for operation in operations), *scattered, *acted]
    start = min((start for start, _ in spans), default=repeat.start)
    stop = max((stop for _, stop in spans), default=repeat.start)
    return (start, stop) if stop > start else (repeat.start, repeat.stop)
