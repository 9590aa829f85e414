"""The two kinds of guest, as the API of Proxmox VE names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dasklab.model.settings.nic import GuestKind


@dataclass(frozen=True)
class KindInApi:
    """How the API names a kind of guest.

    Attributes:
        path: the kind in the API's paths.
        tool: the node's command for such guests.
        disks: the content type that the storage for disks must allow.
        images: the content type that the storage for images must allow.
    """

    path: str
    tool: str
    disks: str
    images: str

    def unlock_line(self, vmid: int | str, lock: str) -> str:
        """Return what root on the node does about a lock that no operation holds any more."""
        unlock = f"{self.tool} unlock {vmid}"
        return f"{unlock}; {self.tool} destroy {vmid}" if lock in UNFINISHED else unlock


UNFINISHED = ("create", "clone", "destroyed")
"""The locks of a guest whose creation or removal broke off."""
VM = KindInApi("qemu", "qm", "images", "import")
CONTAINER = KindInApi("lxc", "pct", "rootdir", "vztmpl")
KINDS: Mapping[GuestKind, KindInApi] = {"vm": VM, "container": CONTAINER}
BY_PATH: Mapping[str, GuestKind] = {kind.path: name for name, kind in KINDS.items()}


def contents(kinds: Collection[GuestKind], storage: str, image_storage: str) -> list[tuple[str, str]]:
    """Return the storages of these kinds of guest, each with a content type that it must allow."""
    some = [in_api for kind, in_api in KINDS.items() if kind in kinds]
    return [pair for kind in some for pair in ((storage, kind.disks), (image_storage, kind.images))]
