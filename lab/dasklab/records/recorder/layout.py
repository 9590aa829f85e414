"""The tables that a recorder fills: their columns and kinds. ``dasklab.records.chunks`` reads the same.

Kinds: ``t`` a time, ``f`` a number, ``i`` an integer, ``s`` a text, stored once per chunk.
"""

from __future__ import annotations

FORM = 2  # of the chunks
SEPARATOR = "\x1f"  # of several keys in one text
COMMON = {
    "busy": "start:t stop:t late:f",
    "cpu": "time:t cpu:f waiting:f loop_waiting:f memory:f",
    "pauses": "start:t stop:t",
    "metrics": "metric:s value:f",
    "config": "setting:s value:s",
    "interfaces": "name:s address:s mbit:f",
    "about": "name:s value:s",
}
SCHEDULER = COMMON | {
    "tasks": "key:s worker:s waiting:t queued:t decided:t due:t sent:t handled:t trigger:s stimulus:s "
    "thread:i start:t stop:t disk:f nbytes:f type:s status:s graph:i span:s",
    "graphs": "number:i received:t client:s tasks:i materialise:f order:f state:f",
    "results": "time:t client:s key:s",
    "events": "time:t kind:s subject:s detail:s",
    "workers": "time:t worker:s name:s threads:i host:s kind:s",
    "load": "time:t worker:s processing:i occupancy:f queued:i",
    "steals": "time:t kind:s key:s victim:s thief:s",
    "bandwidths": "receiver:s sender:s bytes_per_s:f",
}
CLIENT = COMMON | {
    "graphs": "begin:t sent:t nbytes:f keys:i file:s line:i code:s",
    "calls": "kind:s start:t stop:t keys:i nbytes:f file:s line:i code:s",
    "clock": "asked:t scheduler:t answered:t",
}
WORKER = COMMON | {
    "tasks": "key:s arrived:t ready:t executing:t start:t stop:t seceded:t done:t due:t reported:t thread:i"
    " disk:f nbytes:f status:s",
    "needs": "key:s needed:s nbytes:f holders:s",
    "fetches": "start:t stop:t peer:s keys:s status:s deserialise:f",
    "served": "start:t stop:t who:s keys:s serialise:f",
    "waits": "start:t stop:t key:s kind:s name:s",
    "actor_calls": "start:t stop:t actor:s function:s",
    "delays": "time:t delay:f",
    "profile": "stack:s seconds:f",
}
