"""Observe, plan, apply: what the Ansible module ``proxmox_vm`` does, from its arguments to its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dasklab.machines.endpoint.change import Step, render
from dasklab.machines.endpoint.observe import observe
from dasklab.machines.endpoint.observed import Observed, ObservedGuest, fresh
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.machines.inventory.topology import Guest, Lab
from dasklab.machines.plan import images
from dasklab.machines.plan.lab_plan import plan, plan_removal, refuse_rest
from dasklab.model.forms.strict import validate
from dasklab.model.settings.nic import GuestOverride, NicOverride, net_keys

BOOT_S = 60  # a machine may need this long after its start until it answers


@dataclass(frozen=True)
class Request:
    """What an endpoint should have: a lab, or with ``present`` false nothing of it."""

    endpoint: Endpoint
    lab: Lab
    present: bool
    parallel: int

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Request:
        """Validate the module's arguments.

        Raises:
            LabError: naming the argument, its value and the allowed values.
        """
        nics = {name: validate(NicOverride, nic, f"nics of {name}") for name, nic in params["nics"].items()}
        kinds = {
            name: validate(GuestOverride, {"kind": kind}, f"guests of {name}").kind
            for name, kind in params["guests"].items()
        }
        return cls(
            endpoint=Endpoint.from_inventory({**params["endpoint"], "token_secret": params["token_secret"]}),
            lab=validate(Lab, params["lab"], "inventory").with_kinds(kinds).with_nics(nics),
            present=params["state"] == "started",
            parallel=params["parallel"],
        )


@dataclass(frozen=True)
class ProvisionResult:
    """What was done, or would be done in check mode.

    Attributes:
        calls: the API calls as lines of text.
        changes: the same calls as ``Change.described``.
        starting: machines that started so recently that they may not answer yet.
    """

    calls: list[str]
    changes: list[dict[str, Any]]
    text: str
    created: list[str]
    started: list[str]
    starting: list[str]
    guests: dict[str, dict[str, Any]]
    warnings: list[str] = field(default_factory=list)


def provision(request: Request, *, apply: bool, builds_images: bool = False) -> ProvisionResult:
    """Change the endpoint to what the request says, or (without ``apply``) only plan it.

    Args:
        request: what the endpoint should have.
        apply: make the calls.
        builds_images: the image files of a plan need not exist yet, because the lab builds them.

    Raises:
        LabError: something that is not this lab's is in the way, the endpoint refuses, or a task failed.
    """
    pve = Pve(request.endpoint)
    observed = observe(pve, request.lab, claim=request.present)
    steps = (plan if request.present else plan_removal)(observed, request.lab)
    if apply or not builds_images:
        images.refuse_missing_files(steps)
    if apply and steps:
        pve.apply(steps, request.parallel)
        observed = observe(pve, request.lab)
    if apply and not request.present:
        refuse_rest(observed, request.lab)
    return _outcome(steps, observed, request.lab, pve.warnings)


def provision_fresh(request: Request) -> ProvisionResult:
    """Plan for an endpoint that does not exist yet."""
    observed = fresh(request.lab)
    return _outcome(plan(observed, request.lab), observed, request.lab, [])


def _outcome(steps: list[Step], observed: Observed, lab: Lab, warnings: list[str]) -> ProvisionResult:
    changes = [change for step in steps for chain in step.chains for change in chain]
    return ProvisionResult(
        calls=[str(change) for change in changes],
        changes=[change.described() for change in changes],
        text=render(steps),
        created=_created(steps, lab),
        started=_started(steps, lab),
        starting=starting(observed, lab),
        guests={guest.name: _report(observed.guests.get(guest.vmid), guest) for guest in lab.guests},
        warnings=warnings,
    )


def starting(observed: Observed, lab: Lab) -> list[str]:
    """Return machines that started so recently, by whomever, that they may not answer yet."""
    guests = {guest.name: observed.guests.get(guest.vmid) for guest in lab.guests}
    uptimes_s = {
        name: guest.uptime_s for name, guest in guests.items() if guest and guest.status == "running"
    }
    return [name for name, uptime_s in uptimes_s.items() if uptime_s < BOOT_S]


def _created(steps: list[Step], lab: Lab) -> list[str]:
    changes = [change for step in steps for chain in step.chains for change in chain]
    vmids = {change.params.get("newid", change.params.get("vmid")) for change in changes}
    return [guest.name for guest in lab.guests if guest.vmid in vmids]


def _started(steps: list[Step], lab: Lab) -> list[str]:
    paths = [change.path for step in steps for chain in step.chains for change in chain]
    vmids = {path.split("/")[-3] for path in paths if path.endswith("/status/start")}
    return [guest.name for guest in lab.guests if str(guest.vmid) in vmids]


def _report(observed: ObservedGuest | None, guest: Guest) -> dict[str, Any]:
    """Return where a machine is, whether it runs, and its NICs as the endpoint has them."""
    if observed is None:
        return {"vmid": guest.vmid, "node": guest.node, "status": "absent", "nets": {}}
    config = observed.config or {}
    return {
        "vmid": observed.vmid,
        "node": observed.node,
        "status": observed.status,
        "nets": {key: config[key] for key in net_keys(config)},
    }
