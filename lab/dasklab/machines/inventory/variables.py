"""The lab's own variables in an inventory: which names exist, and which values are allowed.

Ansible ignores misspelt variables. Here an unknown name is refused if it has a prefix of the lab's own names:
``lab_``, ``vm_``, ``endpoint_``, or the name of a role (``dask_``, ``proxmox_``, ``guest_`` ...). Names and
types of the roles' variables come from their ``meta/argument_specs.yml``, ``defaults`` and ``vars``. Other
names, such as ``ansible_user`` or a user's own ``site``, are accepted, unless they almost equal one of the
lab's variables that have no such prefix (`scheduler_adress`).

Values are checked for each host before anything starts, except those of role variables that depend on
something that does not exist yet (the facts of the endpoint). The playbook checks these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, create_model, model_validator

from dasklab.errors import LabError, did_you_mean
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.machines.inventory.state_folder import refuse_foreign_state
from dasklab.machines.inventory.topology import Archive, DnsName, Image
from dasklab.model.forms.strict import Strict, validate
from dasklab.model.settings.nic import MODELS, BridgeName, GuestKind, NicModel, RateMbit
from dasklab.paths import ROLES

Subnet = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){2}$", description="three parts of a /24")]
Vmid = Annotated[int, Field(ge=100, le=999_999_999)]
Mtu = Annotated[int, Field(ge=576, le=65_535)]


class LabVariables(Strict):
    """The variables of a host that dasklab reads itself. All are optional here; see ``REQUIRED``."""

    lab_name: DnsName = "dasklab"
    lab_first_vmid: Vmid = 100
    lab_guests: GuestKind = "vm"
    lab_nic_model: NicModel = "virtio"
    lab_nic_rate_mbit: RateMbit = 0
    lab_captures: bool = False
    lab_quick: bool = False
    lab_bridge: BridgeName = "vmbr1"
    lab_subnet: Subnet = "10.77.1"
    lab_management_bridge: BridgeName = "vmbr0"
    lab_management_subnet: Subnet = "10.77.0"
    lab_management_gateway: IPv4Address | None = None
    lab_tunnel_mtu: Mtu = 1450
    management_address: IPv4Address | None = None
    vm_id: Vmid | None = None
    vm_node: str | None = None
    vm_cores: Annotated[int, Field(ge=1, le=512)] = 1
    vm_memory_mb: Annotated[int, Field(ge=64)] = 64
    dask_role: Literal["client", "scheduler", "worker"] = "worker"

    @model_validator(mode="after")
    def _check_nic_model(self) -> LabVariables:
        allowed = MODELS[self.lab_guests]
        if self.lab_guests == "vm" and self.lab_nic_model not in allowed:
            names = ", ".join(sorted(allowed))
            raise ValueError(f"lab_nic_model: a vm has no {self.lab_nic_model}; allowed: {names}")
        return self


REQUIRED = (  # for machines that the lab creates; existing machines need none of them
    "lab_name", "lab_first_vmid", "lab_nic_model", "lab_bridge", "lab_subnet", "lab_management_bridge",
    "lab_management_subnet", "lab_ssh_key", "vm_cores", "vm_memory_mb", "proxmox_image",
)  # fmt: skip
OTHERS = (  # variables whose values are not checked above and that are not a role's
    "lab_state_dir", "lab_ssh_key", "lab_ssh_options", "lab_address", "lab_prefix", "lab_mtu", "lab_mac",
    "lab_interface", "capture_mac", "capture_interface", "scheduler_address", "guest",
    "proxmox", "proxmox_image", "proxmox_container_image",
    "proxmox_disk_gb", "proxmox_cpu", "proxmox_unprivileged", "spark_jre_command",
    "endpoint_command", "endpoint_start", "endpoint_check", "endpoint_image_build", "endpoint_stop",
    "endpoint_facts", "endpoint_account",
)  # fmt: skip
TYPES = {"int": int, "float": float, "bool": bool, "list": list, "dict": dict}  # others accept any value


def open_lab(path: Path) -> Inventory:
    """Open an inventory and check the lab's variables in it.

    Raises:
        LabError: it contains no lab, or a variable is unknown, missing or not allowed; the hosts are named.
            Or its state folder belongs to another lab, or this system is not Linux.
    """
    if sys.platform != "linux":
        raise LabError(
            f"the lab needs Linux; this system is '{sys.platform}'",
            "record, explain, check and daskwire work on any system",
        )
    inventory = Inventory(path)
    _refuse(inventory, _mistakes(inventory))
    refuse_foreign_state(inventory)
    return inventory


def _refuse(inventory: Inventory, mistakes: Iterable[tuple[str, str]]) -> None:
    """Raise the first mistake, with all hosts that have it."""
    hosts: dict[str, list[str]] = {}
    for host, mistake in mistakes:
        hosts.setdefault(mistake, []).append(host)
    for mistake, names in hosts.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise LabError(f"inventory {inventory.path}: {', '.join(names[:3])}{more}: {mistake}")


def _mistakes(inventory: Inventory) -> Iterator[tuple[str, str]]:
    for host in inventory.hosts("lab"):
        names = inventory.names(host)
        for mistake in (*unknown(names), *_unknown_keys(inventory, host), *_missing(names)):
            yield host, mistake
        values = _values(inventory, host, LabVariables.model_fields)
        try:
            validate(LabVariables, values, "")
            validate(_role_variables(), _resolvable(inventory, host), "")
        except LabError as error:
            yield host, error.message.removeprefix(": ")


def unknown(names: Iterable[str]) -> Iterator[str]:
    """Yield a message for each name that is a misspelt variable of the lab."""
    valid = valid_names()
    unprefixed = [name for name in valid if "_" in name and not name.startswith(prefixes())]
    for name in sorted(set(names) - valid):
        if name.startswith(prefixes()):
            prefix = next(prefix for prefix in prefixes() if name.startswith(prefix))
            hint = did_you_mean(name, valid) or f"; names that begin with {prefix} belong to the lab"
            yield f"unknown variable {name}{hint}"
        elif similar := get_close_matches(name, unprefixed, n=1, cutoff=0.9):
            yield f"unknown variable {name}{did_you_mean(name, similar)}"


def _unknown_keys(inventory: Inventory, host: str) -> Iterator[str]:
    for name, allowed in _mappings().items():
        for key in sorted(inventory.keys(host, name) - set(allowed)):
            yield f"{name}.{key}: unknown key; allowed: {', '.join(allowed)}{did_you_mean(key, allowed)}"


@cache
def _mappings() -> dict[str, tuple[str, ...]]:
    """Return the variables that are mappings, each with its allowed keys."""
    return {
        "proxmox": (*Endpoint.model_fields, "node", "pool", "storage", "image_storage"),
        "proxmox_image": tuple(Image.model_fields),
        "proxmox_container_image": tuple(Archive.model_fields),
    }


def _missing(names: set[str]) -> Iterator[str]:
    if "proxmox" in names:
        yield from (f"has no variable {name!r}" for name in REQUIRED if name not in names)


def _values(inventory: Inventory, host: str, names: Iterable[str]) -> dict[str, Any]:
    return {name: inventory.value(host, name) for name in names if inventory.has(host, name)}


def _resolvable(inventory: Inventory, host: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in _role_variables().model_fields:
        try:
            values |= _values(inventory, host, [name])
        except LabError:  # it depends on something that does not exist yet
            continue
    return values


@cache
def valid_names() -> frozenset[str]:
    """Return all variables of the lab that an inventory may set."""
    files = [_read(role, part, "main.yml") for role in _roles() for part in ("defaults", "vars")]
    roles = {name for file in files for name in file}
    return frozenset({*LabVariables.model_fields, *OTHERS, *roles, *_options()})


@cache
def prefixes() -> tuple[str, ...]:
    """Return the prefixes that are reserved for the lab's variables."""
    roles = {f"{role.partition('_')[0]}_" for role in _roles()}
    return ("lab_", "vm_", "endpoint_", *sorted(roles))


@cache
def _role_variables() -> type[Strict]:
    """Return a model of the roles' variables, without those in ``LabVariables``."""
    fields: dict[str, Any] = {
        name: (_type(option), None)
        for name, option in _options().items()
        if name not in LabVariables.model_fields
    }
    return create_model("RoleVariables", __base__=Strict, **fields)


def _type(option: Mapping[str, Any]) -> Any:
    if choices := option.get("choices"):
        return Literal[tuple(choices)]
    return TYPES.get(option.get("type", "str"), Any)


@cache
def _options() -> dict[str, Mapping[str, Any]]:
    """Return every option in the roles' argument specifications."""
    return {
        name: option
        for role in _roles()
        for entry in _read(role, "meta", "argument_specs.yml").get("argument_specs", {}).values()
        for name, option in entry.get("options", {}).items()
    }


@cache
def _roles() -> tuple[str, ...]:
    return tuple(sorted(path.name for path in ROLES.iterdir() if (path / "meta").is_dir()))


def _read(role: str, *parts: str) -> dict[str, Any]:
    path = ROLES.joinpath(role, *parts)
    content = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader) if path.exists() else None
    return content or {}
