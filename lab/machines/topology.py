"""What is wanted: the machines of the lab and their NICs, as the inventory says.

Values come from a file that people write, so they are validated here, once; the rest of
the code can trust them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field

from lab.errors import LabError
from lab.model.nic import LAB_SLOT, Nic, NicOverride
from lab.model.strict import Strict

DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


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
        nics = list(self.nics)
        nics[LAB_SLOT] = override.on(nics[LAB_SLOT])
        return self.model_copy(update={"nics": tuple(nics)})


class Image(Strict):
    """The disk image that the template is made of: a file to upload, or a URL for the node to fetch."""

    file: str | None = None
    url: str | None = None
    name: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\.(qcow2|raw|vmdk)$")] = None
    checksum: str | None = None
    checksum_algorithm: Literal["md5", "sha1", "sha224", "sha256", "sha384", "sha512"] | None = None

    @property
    def basename(self) -> str:
        """The file's name without its folder."""
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

    @property
    def image_mark(self) -> str:
        """How the names of the lab's own images begin on the image storage; no name of a lab has a dot."""
        return f"{self.name}."

    @property
    def image_name(self) -> str:
        """The image's name on the image storage. Others' of the same file are neither used nor removed."""
        return self.image_mark + self.image.basename

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
