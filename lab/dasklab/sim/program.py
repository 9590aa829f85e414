"""A client's program as data: the graphs that it sends, and what it does between them."""

from __future__ import annotations

from ast import literal_eval
from typing import Any, Literal

from pydantic import Field

from dasklab.errors import LabError
from dasklab.model.forms.strict import Strict

BARRIER = "shuffle-barrier"  # prefix of the keys of barriers of peer-to-peer shuffles
Record = tuple[float, float, int]  # CPU seconds, seconds of waiting, bytes of the result; none is negative


class SentGraph(Strict):
    """What the client sends at once.

    Attributes:
        tasks: positions of the keys that it asks to compute.
        wanted_keys: those of ``tasks`` whose results the client holds; all others are computed for these.
        loop_s: how long preparing the graph keeps the scheduler's event loop busy.
        thread_s: how long other threads of the scheduler prepare it before that.
    """

    tasks: tuple[int, ...]
    wanted_keys: tuple[int, ...]
    loop_s: float = Field(default=0, ge=0)
    thread_s: float = Field(default=0, ge=0)


class ClientStep(Strict):
    """What the client does next.

    Attributes:
        does: ``pause`` (its own code runs), ``send`` a graph, ``wait`` for results, ``gather`` or
            ``release`` results, ``scatter`` data.
        seconds: of a pause.
        graph: position of the graph to send.
        results: pairs of a graph and how many of its wanted results must be there when a wait ends.
        total: how many wanted results of all graphs must be there when a wait ends.
        keys: positions of the keys to gather, release or scatter.
    """

    does: Literal["pause", "send", "wait", "gather", "release", "scatter"]
    seconds: float = Field(default=0, ge=0)
    graph: int = 0
    results: tuple[tuple[int, int], ...] = ()
    total: int = 0
    keys: tuple[int, ...] = ()


class Program(Strict):
    """A client's program. Keys, graphs and tasks are referred to by position.

    Attributes:
        keys: unique, as texts (see `parse_key`).
        needs: for each key the keys whose results it needs.
        works: for each key what each of its computations does, in their order. Data has one that takes no
            time.
        prepared: keys of data that was on the workers before the program began.
        steps: in their order.
    """

    keys: tuple[str, ...]
    needs: tuple[tuple[int, ...], ...]
    works: tuple[tuple[Record, ...], ...]
    prepared: tuple[int, ...] = ()
    graphs: tuple[SentGraph, ...]
    steps: tuple[ClientStep, ...]

    def check(self) -> None:
        """Check what always holds of a program.

        Raises:
            LabError: something does not.
        """
        if not len(self.keys) == len(set(self.keys)) == len(self.needs) == len(self.works):
            raise LabError("program: keys, needs and works do not fit each other")
        if not all(self.works):
            raise LabError("program: a key has no work")


def parse_key(text: str) -> Any:
    """Return the key that a text stands for: a tuple for ``('sum-1f', 0)``, else the text itself."""
    if not text.startswith("("):
        return text
    try:
        key = literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return key if isinstance(key, tuple) and _is_key(key) and str(key) == text else text


def _is_key(value: Any) -> bool:
    """Return whether Dask takes a value as a key."""
    return all(map(_is_key, value)) if isinstance(value, tuple) else isinstance(value, str | int | float)
