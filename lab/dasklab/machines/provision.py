"""Observe, plan, apply: the one sequence behind the Ansible module, from its arguments to what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dasklab.machines.change import Step, render
from dasklab.machines.endpoint import Endpoint
from dasklab.machines.observe import observe
from dasklab.machines.observed import Observed, SeenGuest, fresh
from dasklab.machines.plan import plan, plan_removal
from dasklab.machines.proxmox import Pve
from dasklab.machines.topology import Guest, Lab
from dasklab.model.nic import GuestOverride, NicOverride, net_keys
from dasklab.model.strict import validate

BOOT_S = 60  # in which a machine that was started may not answer yet


@dataclass(frozen=True)
class Request:
    """What is asked of an endpoint."""

    endpoint: Endpoint
    lab: Lab
    present: bool
    parallel: int

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Request:
        """Validate the module's arguments.

        Raises:
            LabError: naming the argument, the value and what is allowed.
        """
        cards = {name: validate(NicOverride, nic, f"nics of {name}") for name, nic in params["nics"].items()}
        kinds = {
            name: validate(GuestOverride, {"kind": kind}, f"guests of {name}").kind
            for name, kind in params["guests"].items()
        }
        return cls(
            endpoint=Endpoint.from_inventory({**params["endpoint"], "token_secret": params["token_secret"]}),
            lab=validate(Lab, params["lab"], "inventory").with_kinds(kinds).with_nics(cards),
            present=params["state"] == "started",
            parallel=params["parallel"],
        )


@dataclass(frozen=True)
class Outcome:
    """What was (or in check mode would be) done. ``starting``: up so short that they may not answer yet."""

    calls: list[str]
    text: str
    created: list[str]
    started: list[str]
    starting: list[str]
    guests: dict[str, dict[str, Any]]
    warnings: list[str] = field(default_factory=list)


def provision(request: Request, *, apply: bool) -> Outcome:
    """Bring the endpoint to what is asked, or only say how.

    Raises:
        LabError: something foreign is in the way, the endpoint refuses, or a task failed.
    """
    pve = Pve(request.endpoint)
    seen = observe(pve, request.lab, claim=request.present)
    steps = (plan if request.present else plan_removal)(seen, request.lab)
    if apply and steps:
        pve.apply(steps, request.parallel)
        seen = observe(pve, request.lab)
    return _outcome(steps, seen, request.lab, pve.warnings)


def provision_fresh(request: Request) -> Outcome:
    """Say what would be done on an endpoint that does not exist yet."""
    seen = fresh(request.lab)
    return _outcome(plan(seen, request.lab), seen, request.lab, [])


def _outcome(steps: list[Step], seen: Observed, lab: Lab, warnings: list[str]) -> Outcome:
    return Outcome(
        calls=[str(change) for step in steps for chain in step.chains for change in chain],
        text=render(steps),
        created=_created(steps, lab),
        started=_started(steps, lab),
        starting=starting(seen, lab),
        guests={guest.name: _told(seen.guests.get(guest.vmid), guest) for guest in lab.guests},
        warnings=warnings,
    )


def starting(seen: Observed, lab: Lab) -> list[str]:
    """Names of machines that run, but so short that they may not answer yet, whoever started them."""
    found = {guest.name: seen.guests.get(guest.vmid) for guest in lab.guests}
    up = {name: guest.uptime_s for name, guest in found.items() if guest and guest.status == "running"}
    return [name for name, uptime_s in up.items() if uptime_s < BOOT_S]


def _created(steps: list[Step], lab: Lab) -> list[str]:
    params = [change.params for step in steps for chain in step.chains for change in chain]
    made = {given.get("newid", given.get("vmid")) for given in params}
    return [guest.name for guest in lab.guests if guest.vmid in made]


def _started(steps: list[Step], lab: Lab) -> list[str]:
    paths = [change.path for step in steps for chain in step.chains for change in chain]
    begun = {path.split("/")[-3] for path in paths if path.endswith("/status/start")}
    return [guest.name for guest in lab.guests if str(guest.vmid) in begun]


def _told(seen: SeenGuest | None, guest: Guest) -> dict[str, Any]:
    """What is told of one machine: where it is, whether it runs, its NICs as the endpoint has them."""
    if seen is None:
        return {"vmid": guest.vmid, "node": guest.node, "status": "absent", "nets": {}}
    config = seen.config or {}
    cards = {key: config[key] for key in net_keys(config)}
    return {"vmid": seen.vmid, "node": seen.node, "status": seen.status, "nets": cards}
