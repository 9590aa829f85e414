"""Client of a Proxmox VE endpoint: proxmoxer's resources with retries and one-line errors; waits for tasks.

The one module that imports proxmoxer. It knows nothing of labs (``dasklab.machines.plan`` does) and treats
all endpoints alike.
"""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import requests
from proxmoxer import ProxmoxAPI
from proxmoxer.core import ProxmoxResource, ResourceException

from dasklab.errors import LabError
from dasklab.machines.endpoint.api_errors import (
    PORT_HINT,
    CallError,
    TransientError,
    complete,
    no_answer,
    refusal,
)
from dasklab.machines.endpoint.causes import identifiers, merge, merged_error
from dasklab.machines.endpoint.change import Chain, Change, ExpectedRow, Step
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.model.forms.failure_text import common_text

TASK_OK = re.compile(r"^(OK|WARNINGS: \d+)$")
LOCKED = re.compile(r"can't lock file|(VM|CT) is locked|got timeout")
LOCK_WAIT_S = 120.0
TASK_WAIT_S = 1800.0
EFFECT_WAIT_S = 60.0
CONNECT_S = 10.0
PAUSES_S = (0.2, 0.6, 1.8)  # before a call is repeated
RECONNECT_S = 60.0  # an endpoint that has answered before may be away for so long
CONNECT_PAUSE_S = 3.0
PARALLEL_READS = 8  # pveproxy and pvedaemon have three workers each

T = TypeVar("T")
U = TypeVar("U")


class Resource:
    """A resource of the API, as in proxmoxer: ``api.nodes("pve").qemu(101).config.get()``.

    The calls are proxmoxer's own. A read whose answer was lost is repeated, a change only if it was never
    sent; while connecting fails, both are, for a while. All raise LabError where the endpoint
    refuses or cannot be reached. A resource belongs to the thread that made it: its HTTP session does.
    """

    def __init__(self, pve: Pve, resource: ProxmoxResource) -> None:
        self._pve = pve
        self._resource = resource

    def __getattr__(self, name: str) -> Resource:
        return Resource(self._pve, getattr(self._resource, name))

    def __call__(self, path: str | int) -> Resource:
        return Resource(self._pve, self._resource(path))

    def get(self, **params: Any) -> Any:
        return self._send("GET", partial(self._resource.get, **params))

    def post(self, **params: Any) -> Any:
        return self._send("POST", partial(self._resource.post, **params))

    def put(self, **params: Any) -> Any:
        return self._send("PUT", partial(self._resource.put, **params))

    def delete(self, **params: Any) -> Any:
        return self._send("DELETE", partial(self._resource.delete, **params))

    def post_file(self, file: str, **params: Any) -> Any:
        """POST a local file under the name ``filename`` of ``params``."""

        def post() -> Any:
            with _RenamedFile(file, params["filename"]) as content:
                return self._resource.post(**{**params, "filename": content})

        return self._send("POST", post)

    def document(self) -> dict[str, Any]:
        """GET the whole answer, because proxmoxer returns only its ``data`` (and not, say, ``changes``)."""

        def get() -> Any:
            store = self._resource._store
            answer = store["session"].get(store["base_url"])
            if answer.status_code >= 400:
                raise ResourceException(answer.status_code, "", answer.reason)
            return answer.json()

        document: dict[str, Any] = self._send("GET", get)
        return document

    @property
    def _path(self) -> str:
        return str(self._resource._store["base_url"].partition("/api2/json")[2])

    def _send(self, method: str, call: Callable[[], T]) -> T:
        deadline = time.monotonic() + RECONNECT_S
        for attempt in itertools.count():
            try:
                return self._send_once(method, call)
            except TransientError as error:
                if not error.may_be_repeated(read=method == "GET", has_answered=self._pve.has_answered):
                    raise
                is_patient = (
                    not error.maybe_received and self._pve.has_answered and time.monotonic() < deadline
                )
                if attempt >= len(PAUSES_S) and not is_patient:
                    raise
                time.sleep(PAUSES_S[attempt] if attempt < len(PAUSES_S) else CONNECT_PAUSE_S)
        raise AssertionError("unreachable")

    def _send_once(self, method: str, call: Callable[[], T]) -> T:
        where, endpoint = f"{method} {self._path}", self._pve.endpoint
        try:
            return call()
        except ResourceException as error:
            answer = error.status_code, error.content, error.errors
            raise refusal(*answer, where, endpoint.url, endpoint.token) from None
        except requests.RequestException as error:
            raise no_answer(error, where, endpoint.url) from None


class Pve:
    """A connection to one endpoint. Safe to share between threads: each has its own HTTP session."""

    def __init__(self, endpoint: Endpoint) -> None:
        if endpoint.ca_file and not Path(endpoint.ca_file).is_file():
            raise LabError(
                f"CA file {endpoint.ca_file} does not exist", "copy /etc/pve/pve-root-ca.pem from the node"
            )
        self.endpoint = endpoint
        self.has_answered = False
        self._clock_ahead_s = 0.0
        self._warnings: list[tuple[str, str]] = []  # cause key, message
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(PARALLEL_READS)

    @property
    def api(self) -> Resource:
        """The root of the API, on the calling thread's session."""
        if not hasattr(self._local, "api"):
            self._local.api = self._connect()
        return Resource(self, self._local.api)

    def _connect(self) -> ProxmoxAPI:
        e = self.endpoint
        api = ProxmoxAPI(
            e.host,
            port=e.port,
            user=e.user,
            token_name=e.token_id,
            token_value=e.token_secret,
            verify_ssl=(e.ca_file or True) if e.verify else False,
            timeout=(CONNECT_S, e.timeout_s),
        )
        api._store["session"].hooks["response"].append(self._on_answer)
        return api

    def _on_answer(self, answer: requests.Response, **_: Any) -> None:
        self.has_answered = True
        if date := answer.headers.get("Date"):
            self._clock_ahead_s = parsedate_to_datetime(date).timestamp() - time.time()
        complete(answer, self.endpoint.url)

    def node_time(self) -> float:
        """Return the time of the endpoint's clock, in seconds since 1970."""
        return time.time() + self._clock_ahead_s

    @property
    def warnings(self) -> list[str]:
        """The warnings of tasks that succeeded, each cause once."""
        return merge(self._warnings)

    def map(self, read: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """Read in parallel, on sessions that stay open; results in the order of ``items``."""
        return list(self._readers.map(read, items))

    def version(self) -> tuple[int, int]:
        """Return major and minor version of Proxmox VE."""
        data = self.api.version.get()
        parts = re.match(r"(\d+)(?:\.(\d+))?", str(data.get("version"))) if isinstance(data, dict) else None
        if not parts:
            raise CallError(f"{self.endpoint.url}: GET /version", f"this is no version: {data!r}", PORT_HINT)
        return int(parts[1]), int(parts[2] or 0)

    def apply(self, steps: list[Step], parallel: int = 4) -> None:
        """Carry out a plan: steps in order, the chains of a step up to ``parallel`` at once.

        Chains that have started are finished even when another fails, so that nothing is left half-done.

        Raises:
            LabError: the errors of a step, with the tasks' own words; each cause once.
        """
        for step in steps:
            with ThreadPoolExecutor(max_workers=parallel) as pool:
                outcomes = [pool.submit(self._run_chain, chain) for chain in step.chains]
            failures = [
                (identifiers(chain), error)
                for chain, outcome in zip(step.chains, outcomes, strict=True)
                for error in _failure(outcome)
            ]
            if failures:
                raise merged_error(step.name, failures)

    def call(self, change: Change) -> None:
        """Make one API call, and wait for its task and for locks that others hold.

        Raises:
            LabError: the call was refused, its task failed, or a lock was not released.
        """
        deadline = time.monotonic() + LOCK_WAIT_S
        pause_s = 0.5
        while True:
            try:
                return self._call_once(change)
            except LabError as error:
                if not LOCKED.search(error.message) or time.monotonic() > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.7, 8)

    def _run_chain(self, chain: Chain) -> None:
        for change in chain:
            self.call(change)

    def _call_once(self, change: Change) -> None:
        answer = self._send(change)
        if isinstance(answer, str) and answer.startswith("UPID:"):
            self._wait(answer, change)
        for effect in change.until:
            self._await(effect, change)

    def _send(self, change: Change) -> Any:
        resource = self.api(change.path)
        match change.method:
            case "UPLOAD":
                return resource.post_file(change.file, **change.params)
            case "POST":
                return resource.post(**change.params)
            case "PUT":
                return resource.put(**change.params)
            case "DELETE":
                return resource.delete(**change.params)

    def _await(self, effect: ExpectedRow, change: Change) -> None:
        """Wait until a list of the API has the row that the change leads to."""
        deadline = time.monotonic() + EFFECT_WAIT_S
        while not any(effect.row.items() <= row.items() for row in self.api(effect.path).get()):
            if time.monotonic() > deadline:
                row = " ".join(f"{key} {value}" for key, value in effect.row.items())
                raise CallError(change.why, f"{effect.path} has no {row} after {EFFECT_WAIT_S:.0f} s")
            time.sleep(0.1)

    def _wait(self, upid: str, change: Change) -> None:
        """Wait for a task's end, and keep the warning that it may have ended with."""
        task = self.api.nodes(upid.split(":")[1]).tasks(upid)
        deadline = time.monotonic() + TASK_WAIT_S
        pause_s = 0.1
        while (status := task.status.get())["status"] != "stopped":
            if time.monotonic() > deadline:
                raise CallError(change.why, f"task {upid} still runs after {TASK_WAIT_S:.0f} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)
        outcome = status.get("exitstatus", "unknown")
        if outcome == "OK":
            return
        cause = f"{outcome}{_log_tail(task)}"
        if not TASK_OK.match(outcome):
            raise CallError(change.why, cause)
        self._warnings.append((common_text(cause, identifiers((change,))), f"{change.why}: {cause}"))


class _RenamedFile(io.BufferedReader):
    """A local file that proxmoxer uploads under another ``name``."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(io.FileIO(path))
        self._name = name

    @property
    def name(self) -> str:
        return self._name


def _failure(outcome: Future[None]) -> Iterator[LabError]:
    """Yield the LabError that ended a chain. Any other error is a bug: it is raised."""
    try:
        outcome.result()
    except LabError as error:
        yield error


def _log_tail(task: Resource) -> str:
    lines = [entry["t"] for entry in task.log.get(limit=0)]
    tail = [line for line in lines if not line.startswith("TASK ")][-3:]
    return f" (task log: {' | '.join(tail)})" if tail else ""
