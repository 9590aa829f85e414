"""Talks to a Proxmox VE endpoint: observe what is there, apply a plan, wait for tasks.

The one module that imports proxmoxer. It knows nothing of what a lab should look like
(``lab.machines.plan`` does) and nothing of which endpoint it talks to.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import requests
from proxmoxer import ProxmoxAPI
from proxmoxer.core import ResourceException
from pydantic import Field

from lab.errors import LabError
from lab.machines.plan import Chain, Change, Observed, SeenVm, Step
from lab.machines.topology import Lab
from lab.model.strict import Strict

TASK_OK = re.compile(r"^(OK|WARNINGS: \d+)$")
LOCKED = re.compile(r"can't lock file|VM is locked|got timeout")
LOCK_WAIT_S = 120.0
TASK_WAIT_S = 1800.0


class Endpoint(Strict):
    """Where the API is and who asks. ``verify: false`` must be asked for by name."""

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] = 8006
    user: Annotated[str, Field(pattern=r"^[^@!]+@[^@!]+$")]
    token_id: str
    token_secret: Annotated[str, Field(repr=False)]
    ca_file: str | None = None
    verify: bool = True
    timeout_s: Annotated[float, Field(gt=0)] = 60  # proxmoxer's own 5 s is shorter than a lock wait

    @property
    def url(self) -> str:
        """The endpoint's address, as messages show it."""
        return f"https://{self.host}:{self.port}"


class Pve:
    """A connection to one endpoint; safe to share between threads (each gets its own HTTP session)."""

    def __init__(self, endpoint: Endpoint, progress: Callable[[str], None] = lambda _: None) -> None:
        if endpoint.ca_file and not Path(endpoint.ca_file).is_file():
            raise LabError(
                f"CA file {endpoint.ca_file} does not exist", "copy /etc/pve/pve-root-ca.pem from the node"
            )
        self.endpoint = endpoint
        self.warnings: list[str] = []
        self._progress = progress
        self._local = threading.local()

    def get(self, path: str, /, **params: Any) -> Any:
        """GET ``path`` (below ``/api2/json``) and return its data.

        Raises:
            LabError: the endpoint cannot be reached or refuses.
        """
        with self._explained("GET", path):
            return self._api()(path.lstrip("/")).get(**params)

    def apply(self, steps: list[Step], parallel: int = 4) -> None:
        """Carry out a plan: steps in order, the chains of a step up to ``parallel`` at once.

        Chains that have begun are finished even when another fails, so that nothing is left half-done.

        Raises:
            LabError: what failed, with the task's own words.
        """
        for step in steps:
            with ThreadPoolExecutor(max_workers=parallel) as pool:
                outcomes = [pool.submit(self._run_chain, chain) for chain in step.chains]
            failures = [error for o in outcomes if (error := o.exception()) is not None]
            for error in failures:
                if not isinstance(error, LabError):
                    raise error
            if failures:
                raise LabError(f"{step.name}: " + "; ".join(str(e) for e in failures))

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
            self._progress(change.why)
            self.call(change)

    def _call_once(self, change: Change) -> None:
        with self._explained(change.method, change.path):
            resource = self._api()(change.path.lstrip("/"))
            answer = self._send(resource, change)
        if isinstance(answer, str) and answer.startswith("UPID:"):
            self._wait(answer, change)

    def _send(self, resource: Any, change: Change) -> Any:
        params = dict(change.params)
        if change.method == "UPLOAD":
            with Path(str(params.pop("filename"))).open("rb") as file:
                return resource.post(**params, filename=file)
        return getattr(resource, change.method.lower())(**params)

    def _wait(self, upid: str, change: Change) -> None:
        node = upid.split(":")[1]
        path = f"nodes/{node}/tasks/{upid}"
        deadline = time.monotonic() + TASK_WAIT_S
        pause = 0.1
        while (status := self.get(f"{path}/status"))["status"] != "stopped":
            if time.monotonic() > deadline:
                raise LabError(f"{change.why}: task {upid} still runs after {TASK_WAIT_S:.0f} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
        outcome = status.get("exitstatus", "unknown")
        if not TASK_OK.match(outcome):
            raise LabError(f"{change.why}: {outcome}{self._log_tail(path)}")
        if outcome != "OK":
            self.warnings.append(f"{change.why}: {outcome}{self._log_tail(path)}")

    def _log_tail(self, path: str) -> str:
        lines = [entry["t"] for entry in self.get(f"{path}/log", limit=0)]
        told = [line for line in lines if not line.startswith("TASK ")][-3:]
        return f" (task log: {' | '.join(told)})" if told else ""

    def _api(self) -> ProxmoxAPI:
        if not hasattr(self._local, "api"):
            e = self.endpoint
            self._local.api = ProxmoxAPI(
                e.host,
                port=e.port,
                user=e.user,
                token_name=e.token_id,
                token_value=e.token_secret,
                verify_ssl=(e.ca_file or True) if e.verify else False,
                timeout=e.timeout_s,
            )
        return self._local.api

    def pending_network(self, node: str) -> str:
        """Return the diff of network changes on ``node`` that wait for a reload ('' when none do)."""
        with self._explained("GET", f"/nodes/{node}/network"):
            store = self._api()._store  # proxmoxer returns only "data"; the diff stands beside it
            answer = store["session"].request("GET", f"{store['base_url']}/nodes/{node}/network")
        return str(answer.json().get("changes") or "") if answer.ok else ""

    @contextmanager
    def _explained(self, method: str, path: str) -> Iterator[None]:
        """Turn transport and API errors into one line that says what to do."""
        url = self.endpoint.url
        try:
            yield
        except ResourceException as error:
            raise _refusal(error, f"{method} {path}", self.endpoint) from None
        except requests.exceptions.SSLError as error:
            hint = "give the endpoint's CA as ca_file (on a node: /etc/pve/pve-root-ca.pem)"
            raise LabError(f"{url}: its certificate cannot be verified ({_short(error)})", hint) from None
        except requests.exceptions.RequestException as error:
            hint = "is it running, and reachable from here? 'dasklab doctor' looks closer"
            raise LabError(f"{url}: no answer to {method} {path} ({_short(error)})", hint) from None


def observe(pve: Pve, lab: Lab) -> Observed:
    """Return what the endpoint has of what matters to ``lab``, once operations under way on it have ended.

    Raises:
        LabError: the endpoint cannot be reached, refuses, or lacks the node or a storage.
    """
    version = pve.get("version")["version"].split(".")
    wanted = {lab.template_vmid, *(vm.vmid for vm in lab.vms)}
    _settle(pve, lab.node, wanted)
    records = [r for r in pve.get("cluster/resources", type="vm") if r.get("type") == "qemu"]
    relevant = [r for r in _live_records(pve, lab, records) if _matters(r, lab, wanted)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        vms = list(pool.map(lambda r: _seen_vm(pve, r), relevant))
    network = pve.get(f"nodes/{lab.node}/network")
    bridges = {i["iface"]: (i.get("comments") or "").strip() for i in network if i["type"] == "bridge"}
    return Observed(
        version=(int(version[0]), int(version[1]) if len(version) > 1 else 0),
        vms={vm.vmid: vm for vm in vms},
        images=frozenset(_images(pve, lab)),
        bridges=bridges,
        pending_network=pve.pending_network(lab.node),
    )


def _settle(pve: Pve, node: str, vmids: set[int]) -> None:
    """Wait for tasks that an interrupted run left going: a clone under way is in no pool yet, so unseen."""
    ids = {str(vmid) for vmid in vmids}
    deadline = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < deadline:
        active = pve.get(f"nodes/{node}/tasks", source="active")
        if not [t for t in active if t.get("status") == "RUNNING" and t.get("id") in ids]:
            return
        time.sleep(0.5)


def _live_records(pve: Pve, lab: Lab, records: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Cluster resources lag by seconds; each node's own list is live, so it is what counts."""
    nodes = {lab.node, *(vm.node for vm in lab.vms)}
    elsewhere = [r for r in records if r["node"] not in nodes]
    return elsewhere + [{**r, "node": n} for n in sorted(nodes) for r in pve.get(f"nodes/{n}/qemu")]


def _matters(record: Mapping[str, Any], lab: Lab, wanted: set[int]) -> bool:
    return int(record["vmid"]) in wanted or lab.name in _tags(record)


def _tags(record: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(filter(None, re.split(r"[;, ]+", record.get("tags") or "")))


def _seen_vm(pve: Pve, record: Mapping[str, Any]) -> SeenVm:
    vmid, node = int(record["vmid"]), record["node"]
    path = f"nodes/{node}/qemu/{vmid}"
    config = _config_unlocked(pve, path)
    waiting = [p for p in pve.get(f"{path}/pending") if "pending" in p or "delete" in p] if config else []
    return SeenVm(
        vmid=vmid,
        node=node,
        name=str(record.get("name", vmid)),
        status=str(record["status"]),
        tags=_tags(config or record),
        config=config,
        lock=(config or {}).get("lock"),
        pending=bool(waiting),
    )


def _config_unlocked(pve: Pve, path: str) -> dict[str, str] | None:
    """Return the VM's configuration, once no lock is on it; ``None``: no right to read it."""
    deadline = time.monotonic() + LOCK_WAIT_S / 4
    while True:
        try:
            config = {k: str(v) for k, v in pve.get(f"{path}/config").items()}
        except ForbiddenError:
            return None
        if "lock" not in config or time.monotonic() > deadline:
            return config
        time.sleep(1)


def check_storages(pve: Pve, node: str, contents: Iterable[tuple[str, str]]) -> None:
    """Check that ``node`` has each storage and that it takes the content: pairs of (storage, content type).

    Raises:
        LabError: naming what there is, and the line that mends it.
    """
    storages = {s["storage"]: s for s in pve.get(f"nodes/{node}/storage")}
    for name, content in contents:
        if name not in storages:
            known = ", ".join(sorted(storages)) or "none that this token may see"
            raise LabError(f"node {node} has no storage {name!r}; it has {known}")
        have = storages[name]["content"]
        if content not in have.split(","):
            hint = f"on the node: pvesm set {name} --content {have},{content}"
            raise LabError(f"storage {name!r} does not take {content!r} content", hint)


def _images(pve: Pve, lab: Lab) -> Iterator[str]:
    check_storages(pve, lab.node, [(lab.storage, "images"), (lab.image_storage, "import")])
    for volume in pve.get(f"nodes/{lab.node}/storage/{lab.image_storage}/content", content="import"):
        yield volume["volid"].rpartition("/")[2]


class ForbiddenError(LabError):
    """The token lacks a privilege for this call."""


def _refusal(error: ResourceException, call: str, endpoint: Endpoint) -> LabError:
    reason = str(error.content or error.status_message).strip()
    details = error.errors if isinstance(error.errors, dict) else {}
    if error.status_code == 401:
        token = f"{endpoint.user}!{endpoint.token_id}"
        return LabError(
            f"{endpoint.url}: token {token} is not accepted ({reason})", "check its id and its secret"
        )
    if error.status_code == 403:
        return ForbiddenError(
            f"{call}: {reason}", "'dasklab doctor' prints the lines that give the missing privilege"
        )
    if "already exists" in reason and call.endswith("/clone"):
        hint = "a VM that this token may not see has that VMID: choose another lab_first_vmid"
        return LabError(f"{call}: {reason}", hint)
    named = "; ".join(f"{k}: {v}".strip() for k, v in details.items() if k != "errors")
    return LabError(f"{call}: {reason}{' (' + named + ')' if named else ''}")


def _short(error: Exception) -> str:
    """The innermost reason of a nested transport error."""
    text = str(error)
    found = re.findall(r"(?:Errno -?\d+\] |timeout=|: )([A-Za-z][^:()'\"]+)", text)
    return found[-1].strip() if found else type(error).__name__
