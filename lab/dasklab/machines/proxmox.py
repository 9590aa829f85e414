"""Talks to a Proxmox VE endpoint: asks, makes calls, waits for tasks.

The one module that imports proxmoxer. It knows nothing of what a lab should look like
(``dasklab.machines.plan`` does) and nothing of which endpoint it talks to.
"""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import requests
from proxmoxer.backends.https import Backend
from pydantic import Field, field_validator

from dasklab.errors import LabError
from dasklab.machines.answers import PORT_HINT, CallError, TransientError, document, silence
from dasklab.machines.change import Await, Chain, Change, Step
from dasklab.model.strict import Strict, validate

TASK_OK = re.compile(r"^(OK|WARNINGS: \d+)$")
LOCKED = re.compile(r"can't lock file|VM is locked|got timeout")
LOCK_WAIT_S = 120.0
TASK_WAIT_S = 1800.0
EFFECT_WAIT_S = 60.0
CONNECT_S = 10.0
PAUSES_S = (0.2, 0.6, 1.8)  # before a call is repeated
SIDE_BY_SIDE = 8  # reads at once: pveproxy and pvedaemon have three workers each

T = TypeVar("T")
U = TypeVar("U")

# What an inventory must say of an endpoint, and where the example takes it from.
ASKED = {
    "host": "PROXMOX_HOST: name or address of a node",
    "user": "PROXMOX_USER: such as lab@pve",
    "token_id": "PROXMOX_TOKEN_ID: the token's name, such as dasklab",
    "token_secret": "PROXMOX_TOKEN_SECRET: what pveum printed when it made the token",
}


class Endpoint(Strict):
    """Where the API is and who asks. ``verify: false`` must be asked for by name."""

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] = 8006
    user: Annotated[str, Field(pattern=r"^[^@!]+@[^@!]+$")]
    token_id: str
    token_secret: Annotated[str, Field(repr=False)]
    ca_file: str | None = None
    verify: bool = True
    timeout_s: Annotated[float, Field(gt=0)] = 60  # a lock wait takes 10 s, a refused token 3 s

    @field_validator("user", "token_id", "token_secret")
    @classmethod
    def _one_word(cls, value: str) -> str:
        """They go into a header. The mistake is told without the value: it may be the secret."""
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError("has a line break, a space or a character beyond ASCII in it")
        return value

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Endpoint:
        """The endpoint that an inventory's ``proxmox`` says; what is empty counts as not said.

        Raises:
            LabError: something is missing (all of it is named) or not allowed.
        """
        given = {k: v for k, v in said.items() if k in cls.model_fields and v not in (None, "")}
        if lacking := [f"{key} ({what})" for key, what in ASKED.items() if key not in given]:
            raise LabError(f"the inventory does not say which endpoint: proxmox lacks {', '.join(lacking)}")
        return validate(cls, given, "inventory: proxmox")

    @property
    def url(self) -> str:
        """The endpoint's address, as messages show it."""
        return f"https://{self.host}:{self.port}"

    @property
    def token(self) -> str:
        """The token's full name."""
        return f"{self.user}!{self.token_id}"


class Pve:
    """A connection to one endpoint; safe to share between threads (each gets its own HTTP session)."""

    def __init__(self, endpoint: Endpoint) -> None:
        if endpoint.ca_file and not Path(endpoint.ca_file).is_file():
            raise LabError(
                f"CA file {endpoint.ca_file} does not exist", "copy /etc/pve/pve-root-ca.pem from the node"
            )
        self.endpoint = endpoint
        self._warnings: list[tuple[str, str]] = []  # what is general in each, and its own words
        self._local = threading.local()
        self._known = False  # whether this endpoint has ever answered
        self._readers = ThreadPoolExecutor(SIDE_BY_SIDE)

    @property
    def warnings(self) -> list[str]:
        """What tasks that succeeded warned of, each cause once."""
        return _each_once(self._warnings)

    def get(self, path: str, /, **params: Any) -> Any:
        """GET ``path`` (below ``/api2/json``) and return its data.

        Raises:
            LabError: the endpoint cannot be reached or refuses.
        """
        return self.document(path, **params)["data"]

    def document(self, path: str, /, **params: Any) -> dict[str, Any]:
        """GET ``path`` with what stands beside its data; repeated where the answer got lost on the way.

        Raises:
            LabError: the endpoint cannot be reached or refuses.
        """
        return self._patiently(lambda: self._request("GET", path, params=params), read=True)

    def post(self, path: str, /, **params: Any) -> Any:
        """POST to ``path`` and return the answer's data. Never repeated: it may have been carried out.

        Raises:
            LabError: the endpoint cannot be reached or refuses.
        """
        return self._request("POST", path, data=params)["data"]

    def side_by_side(self, ask: Callable[[T], U], about: Iterable[T]) -> list[U]:
        """Ask several things at once, on connections that are kept; answers in the order of ``about``."""
        return list(self._readers.map(ask, about))

    def version(self) -> tuple[int, int]:
        """The version of Proxmox VE, without its patch level."""
        said = self.get("version")
        parts = re.match(r"(\d+)(?:\.(\d+))?", str(said.get("version"))) if isinstance(said, dict) else None
        if not parts:
            raise CallError(f"{self.endpoint.url}: GET /version", f"this is no version: {said!r}", PORT_HINT)
        return int(parts[1]), int(parts[2] or 0)

    def apply(self, steps: list[Step], parallel: int = 4) -> None:
        """Carry out a plan: steps in order, the chains of a step up to ``parallel`` at once.

        Chains that have begun are finished even when another fails, so that nothing is left half-done.

        Raises:
            LabError: what failed, with the task's own words; a cause that several have is told once.
        """
        for step in steps:
            with ThreadPoolExecutor(max_workers=parallel) as pool:
                outcomes = [pool.submit(self._run_chain, chain) for chain in step.chains]
            failures = [
                (_own_words(chain), error)
                for chain, outcome in zip(step.chains, outcomes, strict=True)
                for error in _failure(outcome)
            ]
            if failures:
                raise _together(step.name, failures)

    def call(self, change: Change) -> None:
        """Make one API call and wait for the task it starts; a held lock is waited for.

        Raises:
            LabError: the call was refused, its task failed, or a lock stayed held.
        """
        deadline = time.monotonic() + LOCK_WAIT_S
        pause = 0.5
        while True:
            try:
                return self._call_once(change)
            except LabError as error:
                if not LOCKED.search(error.message) or time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 1.7, 8)

    def _run_chain(self, chain: Chain) -> None:
        for change in chain:
            self.call(change)

    def _call_once(self, change: Change) -> None:
        answer = self._patiently(lambda: self._send(change), read=False)["data"]
        if isinstance(answer, str) and answer.startswith("UPID:"):
            self._wait(answer, change)
        for awaited in change.until:
            self._await(awaited, change)

    def _await(self, awaited: Await, change: Change) -> None:
        deadline = time.monotonic() + EFFECT_WAIT_S
        while not any(awaited.row.items() <= row.items() for row in self.get(awaited.path)):
            if time.monotonic() > deadline:
                told = " ".join(f"{key} {value}" for key, value in awaited.row.items())
                raise CallError(change.why, f"{awaited.path} has no {told} after {EFFECT_WAIT_S:.0f} s")
            time.sleep(0.1)

    def _patiently(self, make: Callable[[], dict[str, Any]], *, read: bool) -> dict[str, Any]:
        """Make a call, and again where it got lost; a change only if it was never sent."""
        for pause in PAUSES_S:
            try:
                return make()
            except TransientError as error:
                if not error.is_worth_another_try(read=read, known=self._known):
                    raise
                time.sleep(pause)
        return make()

    def _send(self, change: Change) -> dict[str, Any]:
        if change.method == "UPLOAD":
            with _Upload(change.file, str(change.params["filename"])) as file:
                return self._request("POST", change.path, data={**change.params, "filename": file})
        where = "params" if change.method == "DELETE" else "data"
        return self._request(change.method, change.path, **{where: dict(change.params)})

    def _request(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        """Make one request on this thread's connection and return its JSON document."""
        session, base = self._session()
        call = f"{method} /{path.lstrip('/')}"
        try:
            answer = session.request(method, f"{base}/{path.lstrip('/')}", **content)
        except requests.RequestException as error:
            raise silence(error, call, self.endpoint.url) from None
        self._known = True
        return document(answer, call, self.endpoint.url, self.endpoint.token)

    def _session(self) -> tuple[requests.Session, str]:
        if not hasattr(self._local, "session"):
            e = self.endpoint
            backend = Backend(
                e.host,
                port=e.port,
                user=e.user,
                token_name=e.token_id,
                token_value=e.token_secret,
                verify_ssl=(e.ca_file or True) if e.verify else False,
                timeout=(CONNECT_S, e.timeout_s),
            )
            self._local.session = backend.get_session(), backend.get_base_url()
        found: tuple[requests.Session, str] = self._local.session
        return found

    def _wait(self, upid: str, change: Change) -> None:
        node = upid.split(":")[1]
        path = f"nodes/{node}/tasks/{upid}"
        deadline = time.monotonic() + TASK_WAIT_S
        pause = 0.1
        while (status := self.get(f"{path}/status"))["status"] != "stopped":
            if time.monotonic() > deadline:
                raise CallError(change.why, f"task {upid} still runs after {TASK_WAIT_S:.0f} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
        outcome = status.get("exitstatus", "unknown")
        if not TASK_OK.match(outcome):
            raise CallError(change.why, f"{outcome}{self._log_tail(path)}")
        if outcome != "OK":
            text = f"{outcome}{self._log_tail(path)}"
            self._warnings.append((_general(text, _own_words((change,))), f"{change.why}: {text}"))

    def _log_tail(self, path: str) -> str:
        lines = [entry["t"] for entry in self.get(f"{path}/log", limit=0)]
        told = [line for line in lines if not line.startswith("TASK ")][-3:]
        return f" (task log: {' | '.join(told)})" if told else ""


class _Upload(io.BufferedReader):
    """A local file that goes to the endpoint under another name."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(io.FileIO(path))
        self._name = name

    @property
    def name(self) -> str:
        return self._name


def _failure(outcome: Future[None]) -> list[LabError]:
    """The user's mistake or the endpoint's that ended a chain; any other error is ours, and raised."""
    try:
        outcome.result()
    except LabError as error:
        return [error]
    return []


def _own_words(chain: Chain) -> set[str]:
    """What only this chain's machine is called by in a text: its VMID, its name, its node (pure)."""
    places = [re.match(r"/?nodes/([^/]+)(?:/(?:qemu|lxc)/([0-9]+))?", change.path) for change in chain]
    values = [change.params.get(key) for change in chain for key in ("vmid", "newid", "name", "hostname")]
    found = {word for place in places if place for word in place.groups() if word}
    return found | {str(value) for value in values if value}


def _general(cause: str, own: set[str]) -> str:
    """A cause as it is the same of several machines: without their names, numbers, paths and tasks (pure)."""
    text = re.sub(r"UPID:\S+", "UPID", cause)
    for word in sorted(own, key=len, reverse=True):
        text = re.sub(rf"(?<![0-9]){re.escape(word)}(?![0-9])", "OWN", text)
    return re.sub(r"(?<![\w.:])/[^\s'\",;|()]+", "PATH", text)


def _each_once(texts: Iterable[tuple[str, str]]) -> list[str]:
    """One of the texts that have what is general in common, with how many more there are (pure)."""
    by_cause: dict[str, list[str]] = {}
    for general, text in texts:
        by_cause.setdefault(general, []).append(text)
    more = (len(same) - 1 for same in by_cause.values())
    return [
        same[0] + (f" (and {count} more for the same cause)" if count else "")
        for same, count in zip(by_cause.values(), more, strict=True)
    ]


def _together(step: str, failures: list[tuple[set[str], LabError]]) -> LabError:
    """One error of several: each cause once, with how many it struck.

    ``failures`` are errors, each with the words that are only its machine's own.
    """
    told = _each_once(
        (_general(getattr(error, "cause", error.message), own), error.message) for own, error in failures
    )
    return LabError(f"{step}: {'; '.join(told)}", next((e.hint for _, e in failures if e.hint), None))
