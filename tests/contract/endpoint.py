"""Access to the endpoint under test: with proxmoxer, or with plain requests where the HTTP details matter."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import requests
from dasklab.machines import local_endpoint
from proxmoxer import ProxmoxAPI
from proxmoxer.core import ResourceException


@dataclass(frozen=True)
class Endpoint:
    """An endpoint, and a token with only the privileges that the lab needs."""

    host: str
    port: int
    node: str
    user: str
    token_id: str
    token_secret: str
    ca_file: str | bool
    pool: str
    bridge: str
    state: Path | None = None

    @classmethod
    def of_state(cls, state: Path, pool: str) -> Endpoint:
        """Return a minipve instance, with the lab's account created as `dasklab up` does."""
        facts = json.loads((state / "endpoint.json").read_text())
        nodes = [facts["node"], *(name for name in sorted(facts["shells"]) if name != facts["node"])]
        account = local_endpoint.account(facts, state / "account.json", pool, nodes)
        place = {key: facts[key] for key in ("host", "port", "node", "ca_file")}
        token = {key: account[key] for key in ("user", "token_id", "token_secret")}
        return cls(**place, **token, pool=pool, bridge="vmbr0", state=state)

    @classmethod
    def of_environment(cls) -> Endpoint:
        given = os.environ
        return cls(
            given["PROXMOX_HOST"],
            int(given.get("PROXMOX_PORT", "8006")),
            given.get("PROXMOX_NODE", ""),
            given["PROXMOX_USER"],
            given["PROXMOX_TOKEN_ID"],
            given["PROXMOX_TOKEN_SECRET"],
            given.get("PROXMOX_CA_FILE", True),
            given.get("PROXMOX_POOL", "dasklab"),
            given.get("PROXMOX_BRIDGE", ""),
        )

    def completed(self) -> Endpoint:
        """Return a copy with node and bridge looked up if they were not set."""
        node = self.node or next(row["node"] for row in self.api().nodes.get())
        if self.bridge:
            return replace(self, node=node)
        found = self.api().nodes(node).network.get(type="any_bridge")
        return replace(self, node=node, bridge=sorted(row["iface"] for row in found)[0])

    def free_vmids(self, count: int) -> int:
        """Return the first of ``count`` consecutive free VMIDs."""
        first = int(self.api().cluster.nextid.get())
        while taken := [n for n in range(first, first + count) if not self._is_free(n)]:
            first = taken[-1] + 1
        return first

    def _is_free(self, vmid: int) -> bool:
        try:
            self.api().cluster.nextid.get(vmid=vmid)
        except ResourceException:
            return False
        return True

    def grant(self, path: str, role: str, privileges: list[str]) -> None:
        """Grant privileges to the token and its user (minipve only)."""
        root = self.root()
        root.access.roles.post(roleid=role, privs=",".join(privileges))
        root.access.acl.put(
            path=path, roles=role, users=self.user, tokens=f"{self.user}!{self.token_id}", propagate=1
        )

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}/api2/json"

    @property
    def token(self) -> dict[str, str]:
        """The HTTP header with the token."""
        return {"Authorization": f"PVEAPIToken={self.user}!{self.token_id}={self.token_secret}"}

    def api(self) -> Any:
        """Return proxmoxer with the lab's token."""
        return _shared_api(self)

    @property
    def root_password(self) -> str:
        assert self.state is not None
        return (self.state / "root-password").read_text().strip()

    def root(self) -> Any:
        """Return proxmoxer as root@pam with a ticket (minipve only)."""
        return ProxmoxAPI(
            self.host,
            port=self.port,
            user="root@pam",
            password=self.root_password,
            verify_ssl=self.ca_file,
            timeout=60,
        )

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any
    ) -> requests.Response:
        """Send a plain request, with the lab's token unless ``headers`` are set."""
        sent = self.token if headers is None else headers
        return requests.request(
            method, self.url + path, headers=sent, verify=self.ca_file, timeout=60, **more
        )

    def wait(self, upid: str, api: Any = None) -> dict[str, Any]:
        """Wait for a task, and return its status."""
        task = (api or self.api()).nodes(upid.split(":")[1]).tasks(upid)
        deadline = time.monotonic() + 60
        while (status := task.status.get())["status"] == "running":
            assert time.monotonic() < deadline, f"{upid} does not end"
            time.sleep(0.03)
        found: dict[str, Any] = status
        return found

    def done(self, upid: str, api: Any = None) -> list[str]:
        """Wait for a task that must succeed, and return its log."""
        status = self.wait(upid, api)
        task = (api or self.api()).nodes(upid.split(":")[1]).tasks(upid)
        lines = [row["t"] for row in task.log.get(limit=0)]
        assert status["exitstatus"] == "OK" or status["exitstatus"].startswith("WARNINGS"), lines
        return lines

    def next_start(self, vmid: int, api: Any = None) -> str:
        """Return the newest task that starts a guest, such as the one that follows its creation."""
        tasks = (api or self.api()).nodes(self.node).tasks.get(vmid=vmid, source="all")
        upid: str = next(row["upid"] for row in tasks if row["type"] in ("qmstart", "vzstart"))
        return upid

    def failed(self, upid: str, api: Any = None) -> str:
        """Wait for a task that must fail, and return its exit status."""
        text: str = self.wait(upid, api)["exitstatus"]
        assert text != "OK"
        return text

    def vm(self, vmid: int) -> Any:
        return self.api().nodes(self.node).qemu(vmid)

    def create(self, vmid: int, **options: Any) -> list[str]:
        """Create a small VM without disks in the lab's pool, and return the task's log."""
        given = {"memory": 32, "cores": 1, "pool": self.pool, "kvm": 0} | options
        return self.done(self.api().nodes(self.node).qemu.post(vmid=vmid, **given))

    def remove(self, vmid: int) -> None:
        """Stop and destroy a VM in any state."""
        try:
            if self.vm(vmid).status.current.get()["status"] == "running":
                self.done(self.vm(vmid).status.stop.post())
            self.done(self.vm(vmid).delete())
        except ResourceException as gone:
            assert "does not exist" in gone.content or gone.status_code == 403, gone


@cache
def _shared_api(endpoint: Endpoint) -> Any:
    """Return a shared connection with the lab's token, which saves TLS handshakes."""
    return ProxmoxAPI(
        endpoint.host,
        port=endpoint.port,
        user=endpoint.user,
        token_name=endpoint.token_id,
        token_value=endpoint.token_secret,
        verify_ssl=endpoint.ca_file,
        timeout=60,
    )


def refused(call: Any, *arguments: Any, **options: Any) -> ResourceException:
    """Return the error that a call must raise."""
    try:
        answer = call(*arguments, **options)
    except ResourceException as error:
        return error
    raise AssertionError(f"not refused: {answer!r}")
