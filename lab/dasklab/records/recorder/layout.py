"""The tables that a recorder fills: name, kind and content of each column.

Kinds: ``t`` a time, ``f`` a number, ``i`` an integer, ``s`` a text, stored once per chunk.

A content is stated for each column that may hold something of the user's; ``privacy`` says what is stored.

- ``word``: a word of Dask's or the recorder's. ``json``: the same, as JSON.
- ``host``: a name or address of a host, worker or interface.
- ``place``: the address of a worker, or a client. ``places``: several, separated by commas.
- ``key``: a task key, or the name of a client. ``keys``: several. ``subject``: a key or a place.
- ``name``: a name that the user chose. ``type``: the name of a type. ``stack``: a stack of functions.
- ``metric``: the labels of a metric. ``setting``: the name of a setting.
- ``event``: what happened. ``detail``: more about it.
- ``threads``: how many of them a worker has.
- ``path``, ``line``, ``code``: where the user's code is, and its text.

A text without a content counts as a secret.
"""

from __future__ import annotations

from typing import NamedTuple

FORM = 4
"""The format of chunks and their file."""

KEY_SEPARATOR = "\x1f"
MISSING_US = -1  # a time that nobody took


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: str
    content: str


def columns_of(text: str) -> list[Column]:
    """Return the columns of a table that is described as ``name:kind`` or ``name:kind:content``."""
    return [Column(*[*column.split(":"), ""][:3]) for column in text.split()]


COMMON = {
    "busy": "start:t stop:t late:f",
    "cpu": "time:t cpu:f waiting:f loop_waiting:f memory:f loop_cpu:f held:f machine:f",
    "pauses": "start:t stop:t",
    "stacks": "time:t seconds:f reason:s:word key:s:key activity:s:word name:s:code stack:s:stack",
    "metrics": "metric:s:metric value:f",
    "config": "setting:s:setting value:s:json",
    "interfaces": "name:s:host address:s:host mbit:f",
    "about": "name:s:word value:s:word",
}
SCHEDULER = COMMON | {
    "tasks": "key:s:key worker:s:place waiting:t queued:t decided:t due:t sent:t handled:t trigger:s:key "
    "stimulus:s:word thread:i start:t stop:t disk:f nbytes:f type:s:type status:s:word graph:i span:s:name "
    "client:s:key",
    "graphs": "number:i received:t client:s:key tasks:i materialise:f order:f state:f",
    "results": "time:t client:s:key key:s:key",
    "events": "time:t kind:s:event subject:s:subject detail:s:detail",
    "workers": "time:t worker:s:place name:s:host threads:i:threads host:s:host kind:s:word",
    "load": "time:t worker:s:place processing:i occupancy:f queued:i",
    "memory": "time:t worker:s:place process:f managed:f spilled:f limit:f",
    "steals": "time:t kind:s:word key:s:key victim:s:place thief:s:place",
    "bandwidths": "receiver:s:place sender:s:place bytes_per_s:f",
}
CLIENT = COMMON | {
    "graphs": "begin:t sent:t nbytes:f keys:i file:s:path line:i:line code:s:code",
    "calls": "kind:s:word start:t stop:t keys:i nbytes:f file:s:path line:i:line code:s:code missing:f",
    "lines": "start:t stop:t waits:i file:s:path line:i:line code:s:code",
    "clock": "asked:t scheduler:t answered:t",
}
WORKER = COMMON | {
    "tasks": "key:s:key arrived:t ready:t executing:t start:t stop:t seceded:t done:t due:t reported:t "
    "thread:i disk:f nbytes:f status:s:word cpu:f cpu_waiting:f cpu_turns:f",
    "errors": "key:s:key time:t type:s:type text:s:code",
    "needs": "key:s:key needed:s:key nbytes:f holders:s:places",
    "shards": "start:t stop:t peer:s:place nbytes:f",
    "fetches": "start:t stop:t peer:s:place keys:s:keys status:s:word deserialise:f",
    "served": "start:t stop:t who:s:place keys:s:keys serialise:f",
    "waits": "start:t stop:t key:s:key kind:s:word name:s:name",
    "actor_calls": "start:t stop:t actor:s:key function:s:name",
    "delays": "time:t delay:f",
    "profile": "stack:s:stack seconds:f",
}


def layout(process: str) -> dict[str, list[Column]]:
    """Return the columns of each table that a process fills."""
    tables = {"scheduler": SCHEDULER, "client": CLIENT}.get(process, WORKER)
    return {name: columns_of(text) for name, text in tables.items()}
