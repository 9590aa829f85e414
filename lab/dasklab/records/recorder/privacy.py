"""What is stored of each kind of content (see ``layout``) when keys are hashed, or code is left out.

The recorder applies it when it packs rows into chunks, ``dasklab.records.anonymize`` to chunks that exist.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask.utils import key_split

from dasklab.records.recorder.layout import KEY_SEPARATOR, Column

PUBLIC = {"word", "json", "host", "setting"}  # the setting's names are an allow-list of their own
KNOWN_PACKAGES = {
    "dask",
    "distributed",
    "numpy",
    "pandas",
    "pyarrow",
    "xarray",
    "scipy",
    "datetime",
    "collections",
}
KNOWN_EVENTS = {
    "lost", "add-worker", "remove-worker", "worker-status-change", "add-client", "remove-client", "gather",
    "scatter", "restart", "restart-workers", "rebalance", "replicate", "retire-workers", "retired",
    "could-not-retire", "run-function", "p2p-failed", "worker-ttl-timed-out", "cancel", "retry",
    "killed-worker", "worker-restart-memory", "client-restart",
}  # fmt: skip
DETAILS = {
    "status", "prev-status", "worker", "count", "processing-tasks", "lost-computed-tasks",
    "lost-scattered-tasks", "expected", "failures", "rss", "limit",
}  # fmt: skip
STATUSES = {
    "undefined", "created", "init", "starting", "running", "paused", "stopping", "stopped", "closing",
    "closing_gracefully", "closed", "failed", "dont_reply", "OK",
}  # fmt: skip
METRIC_WORDS = {
    "execute", "gather-dep", "get-data", "p2p", "memory", "spill", "host", "process", "tcp-retransmitted",
    "cpu", "waiting-for-cpu", "thread-cpu", "thread-noncpu", "executor", "offload", "other", "network",
    "serialize", "deserialize", "compress", "decompress", "disk-read", "disk-write", "memory-read", "failed",
    "cancelled", "idle", "send", "foreground", "background-comms", "background-disk",
    "p2p-shard-partition-cpu", "p2p-shard-partition-noncpu", "p2p-get-output-cpu", "p2p-get-output-noncpu",
    "missing", "busy", "N", "A", "idle or other spans", "seconds", "bytes", "count", "segments",
}  # fmt: skip
SPAN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|None")
ADDRESS = re.compile(r"[a-z]+://[\w.:\[\]%/-]*")
STIMULUS = re.compile(r"[a-z0-9_-]+")
FAILURE = re.compile(r"(?P<where>\S+: \w+): (?P<error>\w+).*", re.DOTALL)
FRAME_PLACE = re.compile(r" \(.*\)$", re.DOTALL)


def digest(text: str) -> str:
    """Return a hash that is the same in each record, so that records can be compared."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()


def hash_key(key: str) -> str:
    """Hash a key so that keys of one prefix still share one: ``dask.utils.key_split`` returns its hash."""
    return f"{digest(str(key_split(key)))}-{digest(key)}"


def hash_keys(keys: str) -> str:
    return KEY_SEPARATOR.join(sorted(map(hash_key, keys.split(KEY_SEPARATOR))))


def hash_place(place: str) -> str:
    """Return the address of a worker as it is; hash anything else, such as the name of a client."""
    return place if place in ("", "None") or ADDRESS.fullmatch(place) else hash_key(place)


def hash_places(places: str) -> str:
    return ",".join(map(hash_place, places.split(",")))


def hash_subject(subject: str) -> str:
    return "all" if subject == "all" else hash_place(subject)


def hash_type(name: str) -> str:
    is_public = hasattr(builtins, name) or name.partition(".")[0] in KNOWN_PACKAGES
    return name if is_public else digest(name)


def hash_event(kind: str) -> str:
    return kind if kind in KNOWN_EVENTS else digest(kind)


def hash_metric(metric: str) -> str:
    """Hash the prefix of tasks and other labels that are not Dask's own.

    Labels of tasks are ``execute/prefix/activity/unit``, on workers with the id of a span before the prefix.
    """
    context, *labels = metric.split("/")
    if context == "execute" and len(labels) > 2:
        middle, ends = labels[:-2], labels[-2:]
        span = [middle.pop(0)] if len(middle) > 1 and SPAN_ID.fullmatch(middle[0]) else []
        return "/".join([context, *span, digest("/".join(middle)), *map(_metric_word, ends)])
    return "/".join(map(_metric_word, [context, *labels]))


def _metric_word(label: str) -> str:
    return label if label in METRIC_WORDS or SPAN_ID.fullmatch(label) else digest(label)


def hash_stack(stack: str) -> str:
    return json.dumps([digest(frame) for frame in json.loads(stack)])


def stack_without_paths(stack: str) -> str:
    return json.dumps([FRAME_PLACE.sub("", frame) for frame in json.loads(stack)])


def known_detail(detail: str) -> str:
    """Keep what Dask itself says of an event, such as a worker's status; leave out texts and errors."""
    if not detail.startswith("{"):
        return detail if STIMULUS.fullmatch(detail) else ""
    details = {name: value for name, value in json.loads(detail).items() if name in DETAILS}
    return json.dumps({name: value for name, value in details.items() if _is_known(value)})


def _is_known(value: Any) -> bool:
    return not isinstance(value, str) or value in STATUSES or ADDRESS.fullmatch(value) is not None


def leave_out(text: str) -> str:
    return ""


HASHED: dict[str, Callable[[str], str]] = {
    "key": hash_key,
    "keys": hash_keys,
    "place": hash_place,
    "places": hash_places,
    "subject": hash_subject,
    "name": digest,
    "type": hash_type,
    "metric": hash_metric,
    "event": hash_event,
    "detail": known_detail,
    "stack": hash_stack,
    "path": leave_out,
    "code": leave_out,
}
WITHOUT_CODE: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(HASHED, str),
    "detail": known_detail,
    "stack": stack_without_paths,
    "path": leave_out,
    "code": leave_out,
}


class Privacy:
    """What must not be stored in plain text: with ``hashed`` keys and names, without ``code`` code and paths.

    Hashed keys leave out code and paths, too, because these name functions.
    """

    def __init__(self, hashed: bool = False, code: bool = True) -> None:
        self.hashed, self.code = hashed, code and not hashed
        self.lines: dict[tuple[str, int], int] = {}  # without code: a number for each line

    def conceal(
        self, columns: Sequence[Column], values: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        """Return the values of a table's columns as they are stored."""
        if self.code:
            return dict(values)
        return {column.name: self._conceal(column, columns, values) for column in columns}

    def _conceal(
        self, column: Column, columns: Sequence[Column], values: Mapping[str, Sequence[Any]]
    ) -> Sequence[Any]:
        own = values[column.name]
        if column.content == "line":
            files = next(
                (values[other.name] for other in columns if other.content == "path"), [""] * len(own)
            )
            return [
                self.lines.setdefault(line, len(self.lines) + 1) if any(line) else 0
                for line in zip(files, own, strict=True)
            ]
        if column.kind != "s" or column.content in PUBLIC:
            return own
        conceal = (HASHED if self.hashed else WITHOUT_CODE).get(column.content, digest)
        concealed = {text: conceal(text) if text else "" for text in set(own)}
        return [concealed[text] for text in own]

    def failures(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return counts of failures by their texts; a text of an error counts as code."""
        stored: dict[str, int] = {}
        for failure, count in counts.items():
            text = failure if self.code else failure_without_text(failure)
            stored[text] = stored.get(text, 0) + count
        return stored


def failure_without_text(failure: str) -> str:
    """Shorten ``process: hook: Error('text')`` to ``process: hook: Error``; name only Python's own errors."""
    match = FAILURE.fullmatch(failure)
    if match is None:
        return "a failure whose text is not stored"
    error = match["error"] if hasattr(builtins, match["error"]) else "error"
    return f"{match['where']}: {error}"
