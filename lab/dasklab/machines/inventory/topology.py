"""The requested lab: machines and NICs as the inventory describes them.

People write the inventory, so its values are validated here, once. All other code can trust them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dasklab.errors import LabError, did_you_mean
from dasklab.model.forms.strict import Strict
from dasklab.model.settings.nic import LAB_SLOT, MODELS, GuestKind, Nic, NicOverride

FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*"
MAX_GUESTS = 244  # addresses from .11 to .254 of a /24
DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class Guest(Strict):
    """One machine of the lab, a virtual machine or a container. ``nics[n]`` is its ``net<n>``."""

    name: DnsName
    kind: GuestKind = "vm"
    vmid: Annotated[int, Field(ge=100, le=999_999_999)]
    node: str
    cores: Annotated[int, Field(ge=1, le=512)]
    memory_mb: Annotated[int, Field(ge=64)]
    nics: Annotated[tuple[Nic, ...], Field(min_length=1, max_length=6)]

    @model_validator(mode="after")
    def _check_nic_models(self) -> Guest:
        for slot, nic in enumerate(self.nics):
            if nic.model not in MODELS[self.kind]:
                allowed = ", ".join(sorted(MODELS[self.kind]))
                raise ValueError(f"net{slot} cannot be {nic.model}: a {self.kind} has {allowed}")
        return self

    def for_kind(self, kind: GuestKind) -> Guest:
        """Return the same machine as another kind of guest, with NIC models that this kind supports."""
        nics = tuple(nic.for_kind(kind) for nic in self.nics)
        return self.model_copy(update={"kind": kind, "nics": nics})

    def with_lab_nic(self, override: NicOverride) -> Guest:
        """Return the same machine with another model or rate cap on its lab link."""
        nics = list(self.nics)
        nics[LAB_SLOT] = override.apply_to(nics[LAB_SLOT])
        return self.model_copy(update={"nics": tuple(nics)})


class Image(Strict):
    """The disk image of virtual machines: a file to upload, or a URL from which the node downloads it."""

    file: str | None = None
    url: str | None = None
    name: Annotated[str | None, Field(pattern=rf"{FILE_NAME}\.(qcow2|raw|vmdk)$")] = None
    checksum: str | None = None
    checksum_algorithm: Literal["md5", "sha1", "sha224", "sha256", "sha384", "sha512"] | None = None

    @property
    def basename(self) -> str:
        """The name of the image's file, without its folder."""
        return self.name or (self.file or self.url or "").rstrip("/").rpartition("/")[2]


class Archive(Image):
    """The archive that containers are unpacked from."""

    name: Annotated[str | None, Field(pattern=rf"{FILE_NAME}\.tar(\.(gz|xz|zst))?$")] = None


def zone_of(lab: str) -> str:
    """Return the SDN zone of a lab on several nodes: its name, or a hash if it exceeds eight characters."""
    if re.fullmatch(r"[a-z][a-z0-9]{1,7}", lab):
        return lab
    return f"l{hashlib.sha256(lab.encode()).hexdigest()[:7]}"


class Lab(Strict):
    """A requested lab.

    Virtual machines are linked clones of a template, which is created from ``image`` as ``template_vmid``.
    Containers are unpacked from ``container_image``. In an ``unprivileged`` container, root is mapped to an
    ordinary user of the node.
    """

    name: DnsName
    pool: str
    node: str
    storage: str
    image_storage: str
    image: Image
    container_image: Archive | None = None
    template_vmid: Annotated[int, Field(ge=100, le=999_999_999)]
    disk_gb: Annotated[int, Field(ge=0)] = 0
    cpu: str = "x86-64-v2-AES"
    unprivileged: bool = True
    ssh_public_key: str
    bridges: tuple[str, ...] = ()
    tunnel_mtu: Annotated[int, Field(ge=576, le=65_535)] = 1450  # between nodes; VXLAN headers take 50 bytes
    guests: tuple[Guest, ...]

    @property
    def zone(self) -> str:
        """The SDN zone that holds the bridges of a lab on several nodes."""
        return zone_of(self.name)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its guests, in the inventory's order."""
        return tuple(dict.fromkeys(guest.node for guest in self.guests)) or (self.node,)

    @property
    def templates(self) -> dict[int, str]:
        """VMID -> node of each template. Each node has its own, because clones need it on their storage.

        The first template is ``template_vmid``; the VMIDs of the others follow that of the last possible
        machine.
        """
        return {self.template_vmid + bool(k) * (MAX_GUESTS + k): node for k, node in enumerate(self.nodes)}

    def template_of(self, node: str) -> int:
        """Return the VMID of a node's template."""
        return next(vmid for vmid, where in self.templates.items() if where == node)

    @property
    def image_mark(self) -> str:
        """The prefix of the lab's images on the image storage. Unambiguous, as no lab's name has a dot."""
        return f"{self.name}."

    def name_of(self, image: Image) -> str:
        """Return the name of the lab's own copy of an image on the image storage."""
        return self.image_mark + image.basename

    @property
    def kinds(self) -> frozenset[GuestKind]:
        """The kinds of its guests."""
        return frozenset(guest.kind for guest in self.guests)

    def with_kinds(self, kinds: Mapping[str, GuestKind]) -> Lab:
        """Return the lab with a trial's kinds of guests; keys are machine names."""
        self._check_names("guests", kinds)
        guests = tuple(guest.for_kind(kinds.get(guest.name, guest.kind)) for guest in self.guests)
        return self.model_copy(update={"guests": guests})

    def with_nics(self, overrides: Mapping[str, NicOverride]) -> Lab:
        """Return the lab with a trial's NIC overrides; keys are machine names."""
        self._check_names("nics", overrides)
        guests = tuple(
            guest.with_lab_nic(overrides[guest.name]) if guest.name in overrides else guest
            for guest in self.guests
        )
        return self.model_copy(update={"guests": guests})

    def _check_names(self, setting: str, names: Iterable[str]) -> None:
        machines = {guest.name for guest in self.guests}
        for name in set(names) - machines:
            raise LabError(
                f"{setting}: no machine {name!r} in the inventory; "
                f"there are {', '.join(sorted(machines))}{did_you_mean(name, machines)}"
            )


def template_name(lab: Lab, vmid: int) -> str:
    """Return the name of a template for messages."""
    return "the template" if len(lab.nodes) == 1 else f"the template of node {lab.templates[vmid]}"


def check_unique(lab: Lab) -> None:
    """Refuse a lab in which two machines share a VMID, name, MAC or address.

    Raises:
        LabError: naming the shared value and the machines.
    """
    guests = [(f"VMID {guest.vmid}", guest.name) for guest in lab.guests]
    guests += [(f"VMID {vmid}", template_name(lab, vmid)) for vmid in lab.templates]
    nics = [(guest.name, nic) for guest in lab.guests for nic in guest.nics]
    macs = [(f"MAC {nic.mac.upper()}", name) for name, nic in nics]
    addresses = [(f"address {nic.address.ip}", name) for name, nic in nics if nic.address]
    for what, owners in _shared([*guests, *macs, *addresses]):
        raise LabError(f"inventory: {' and '.join(owners)} have the same {what}; each needs its own")


def _shared(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    pairs = list(pairs)
    counts = Counter(what for what, _ in pairs)
    return [(what, [o for w, o in pairs if w == what]) for what, n in counts.items() if n > 1]
