"""What is wanted: the machines of the lab and their NICs, as the inventory says.

Values come from a file that people write, so they are validated here, once; the rest of
the code can trust them. The conversion between the lab's unit for a rate cap (Mbit/s)
and Proxmox VE's (MiB/s) lives here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Interface
from typing import Annotated, Literal

from pydantic import Field

from lab.errors import LabError
from lab.model.strict import Strict

NicModel = Literal["virtio", "e1000", "rtl8139"]
NIC_MODELS: tuple[NicModel, ...] = ("virtio", "e1000", "rtl8139")
LAB_SLOT = 1  # net1 is the link under test

MIB = 1024 * 1024
Mac = Annotated[str, Field(pattern=r"^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$")]
DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class Nic(Strict):
    """One virtual network card. ``rate_mbit`` is a cap in both directions, 0 means none."""

    model: NicModel = "virtio"
    mac: Mac
    bridge: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")]
    address: IPv4Interface | None = None
    gateway: IPv4Address | None = None
    rate_mbit: Annotated[float, Field(ge=0)] = 0


class Vm(Strict):
    """One machine of the lab; ``nics[n]`` becomes ``net<n>``."""

    name: DnsName
    vmid: Annotated[int, Field(ge=100, le=999_999_999)]
    node: str
    cores: Annotated[int, Field(ge=1, le=512)]
    memory_mb: Annotated[int, Field(ge=64)]
    nics: Annotated[tuple[Nic, ...], Field(min_length=1, max_length=6)]

    def with_lab_nic(self, override: NicOverride) -> Vm:
        """Return the same machine with another model or rate cap on its lab link."""
        changes = {k: v for k, v in override.model_dump().items() if v is not None}
        nics = list(self.nics)
        nics[LAB_SLOT] = nics[LAB_SLOT].model_copy(update=changes)
        return self.model_copy(update={"nics": tuple(nics)})


class NicOverride(Strict):
    """What a trial changes on one machine's lab link; ``None`` leaves the inventory's value."""

    model: NicModel | None = None
    rate_mbit: Annotated[float | None, Field(ge=0)] = None


class Image(Strict):
    """The disk image that the template is made of: a file to upload, or a URL for the node to fetch."""

    file: str | None = None
    url: str | None = None
    name: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\.(qcow2|raw|vmdk)$")] = None
    checksum: str | None = None
    checksum_algorithm: Literal["md5", "sha1", "sha224", "sha256", "sha384", "sha512"] | None = None

    @property
    def volume(self) -> str:
        """File name of the volume on the image storage."""
        return self.name or (self.file or self.url or "").rstrip("/").rpartition("/")[2]


class Lab(Strict):
    """Everything that the provisioning is asked for."""

    name: DnsName
    pool: str
    node: str
    storage: str
    image_storage: str
    image: Image
    template_vmid: Annotated[int, Field(ge=100, le=999_999_999)]
    disk_gb: Annotated[int, Field(ge=0)] = 0
    cpu: str = "x86-64-v2-AES"
    ssh_public_key: str
    bridges: tuple[str, ...] = ()
    vms: tuple[Vm, ...]

    def with_nics(self, overrides: Mapping[str, NicOverride]) -> Lab:
        """Return the lab with a trial's NIC overrides; keys are machine names."""
        known = {vm.name for vm in self.vms}
        for name in overrides.keys() - known:
            raise LabError(
                f"nics: no machine {name!r} in the inventory; there are {', '.join(sorted(known))}"
            )
        vms = tuple(vm.with_lab_nic(overrides[vm.name]) if vm.name in overrides else vm for vm in self.vms)
        return self.model_copy(update={"vms": vms})


def check_unique(lab: Lab) -> None:
    """Refuse a lab in which two machines share a VMID, name, MAC or address.

    Raises:
        LabError: naming what is shared and by whom.
    """
    vms = [(f"VMID {vm.vmid}", vm.name) for vm in lab.vms]
    vms.append((f"VMID {lab.template_vmid}", "the template"))
    nics = [(vm.name, nic) for vm in lab.vms for nic in vm.nics]
    macs = [(f"MAC {nic.mac.upper()}", name) for name, nic in nics]
    addresses = [(f"address {nic.address.ip}", name) for name, nic in nics if nic.address]
    for what, owners in _shared([*vms, *macs, *addresses]):
        raise LabError(f"inventory: {what} is given to {' and '.join(owners)}; each needs its own")


def _shared(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    pairs = list(pairs)
    counts = Counter(what for what, _ in pairs)
    return [(what, [o for w, o in pairs if w == what]) for what, n in counts.items() if n > 1]


def rate_to_pve(rate_mbit: float) -> float:
    """Mbit/s (10^6 bit/s) to PVE's ``rate`` (MiB/s): 1000 Mbit/s is 119.209290."""
    return rate_mbit * 1e6 / 8 / MIB


def rate_from_pve(rate_mib: float) -> float:
    """PVE's ``rate`` (MiB/s) to Mbit/s, as PVE computes it: whole bytes per second."""
    return int(rate_mib * MIB) * 8 / 1e6


def net_to_pve(nic: Nic) -> str:
    """Return the value of ``net<n>``; the MAC is always sent, else PVE would draw a new one."""
    rate = f",rate={rate_to_pve(nic.rate_mbit):.6f}" if nic.rate_mbit else ""
    return f"{nic.model}={nic.mac},bridge={nic.bridge},firewall=0{rate}"


def ipconfig_to_pve(nic: Nic) -> str:
    """Return the value of ``ipconfig<n>`` for a NIC with an address."""
    return f"ip={nic.address}{f',gw={nic.gateway}' if nic.gateway else ''}"


def net_from_pve(text: str) -> dict[str, str | float]:
    """Parse ``net<n>`` into model, mac (upper case), bridge, rate (bytes/s) and the rest, for comparison.

    Two NICs are the same when these dicts are equal; their strings may still differ in
    order, case and number format.
    """
    pairs = [part.partition("=")[::2] for part in text.split(",") if part]
    known: dict[str, str | float] = {"firewall": "0", "rate": 0.0}
    for key, value in pairs:
        if key in {"macaddr", "model"}:
            known["mac" if key == "macaddr" else key] = value.upper() if key == "macaddr" else value
        elif ":" in value and key not in {"trunks"}:
            known |= {"model": key, "mac": value.upper()}
        elif key == "rate":
            known["rate"] = float(int(float(value) * MIB))
        else:
            known[key] = value
    return known
