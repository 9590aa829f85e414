"""Plan the API calls that bring images to the nodes and remove them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Chain, Change, Step, Value
from dasklab.machines.endpoint.guest_kinds import CONTAINER, VM
from dasklab.machines.endpoint.observed import Observed, ObservedGuest
from dasklab.machines.inventory.topology import Image, Lab
from dasklab.machines.plan import containers
from dasklab.model.settings.nic import GuestKind


def make(observed: Observed, lab: Lab, remaining: Mapping[int, ObservedGuest]) -> Iterator[Chain]:
    """Yield one chain for each image that a node lacks and that a missing guest needs.

    Args:
        observed: what the endpoint has.
        lab: the requested lab.
        remaining: the guests that exist and stay, by VMID.

    Raises:
        LabError: a node is too old to accept an image.
    """
    images = ((node, image) for node in lab.nodes for image in _needed(lab, remaining, node))
    needed = dict.fromkeys((_storing_node(observed, lab, node), *image) for node, image in images)
    for node, name, content in needed:
        if name not in observed.nodes[node].images:
            image = lab.image if content == VM.images else containers.image(lab)
            yield (_call(observed, lab, node, image, content),)


def remove(observed: Observed, lab: Lab) -> Iterator[Chain]:
    """Yield a chain for each image that carries the lab's mark, on all nodes."""
    for node in dict.fromkeys(_storing_node(observed, lab, node) for node in observed.nodes):
        path = f"/nodes/{node}/storage/{lab.image_storage}/content/{lab.image_storage}"
        for content, name in sorted((content, name) for name, content in observed.nodes[node].images.items()):
            if name.startswith(lab.image_mark):
                yield (Change("DELETE", f"{path}:{content}/{name}", "the lab's image"),)


def _needed(lab: Lab, remaining: Mapping[int, ObservedGuest], node: str) -> Iterator[tuple[str, str]]:
    """Yield name and content type of the images that the node's missing guests are made from."""
    guests = [guest for guest in lab.guests if guest.node == node]
    if any(guest.kind == "vm" for guest in guests) and lab.template_of(node) not in remaining:
        yield lab.name_of(lab.image), VM.images
    if any(guest.vmid not in remaining for guest in guests if guest.kind == "container"):
        yield lab.name_of(containers.image(lab)), CONTAINER.images


def _storing_node(observed: Observed, lab: Lab, node: str) -> str:
    """Return the node through which a node's images are stored: a shared storage gets each image once."""
    if lab.image_storage not in observed.nodes[node].shared:
        return node
    return next(name for name, other in observed.nodes.items() if lab.image_storage in other.shared)


def _call(observed: Observed, lab: Lab, node: str, image: Image, content: str) -> Change:
    name, why = lab.name_of(image), "the image of the guests"
    if content == VM.images and observed.version < (8, 4):
        raise LabError(
            f"Proxmox VE {observed.version[0]}.{observed.version[1]} cannot import an image through its API"
            " (8.4 and later can)",
            f"upgrade, or as root on the node put {name} where storage {lab.image_storage!r} keeps 'import'",
        )
    base = f"/nodes/{node}/storage/{lab.image_storage}"
    params: dict[str, Value] = {"content": content, "filename": name}
    if image.file:
        return Change("UPLOAD", f"{base}/upload", why, params, image.file)
    params["url"] = image.url or ""
    if image.checksum and image.checksum_algorithm:
        params |= {"checksum": image.checksum, "checksum-algorithm": image.checksum_algorithm}
    return Change("POST", f"{base}/download-url", why, params)


def resolve(file: str, inventory: Path) -> Path:
    """Return where an image file is: a relative path is meant from the lab's folder.

    The lab's folder is the one with ``inventory/hosts.yml``, or else the folder of the inventory.
    """
    folder = inventory.absolute().parent
    return (folder.parent if folder.name == "inventory" else folder) / Path(file).expanduser()


def resolved(image: Mapping[str, Any] | None, inventory: str) -> dict[str, Any] | None:
    """Return the inventory's description of an image, with the whole path of its file."""
    if not image or not image.get("file"):
        return None if image is None else dict(image)
    return {**image, "file": str(resolve(str(image["file"]), Path(inventory)))}


def refuse_missing_files(steps: Iterable[Step]) -> None:
    """Refuse a plan that uploads a file which does not exist here.

    Raises:
        LabError: naming the file.
    """
    for change in (change for step in steps for chain in step.chains for change in chain):
        if change.method == "UPLOAD":
            kind: GuestKind = "vm" if change.params["content"] == VM.images else "container"
            if error := missing_file(kind, Image(file=change.file)):
                raise error


def missing_file(kind: GuestKind, image: Image) -> LabError | None:
    """Return the error for an image whose file does not exist here; None if it does, or if it has a URL."""
    if not image.file or Path(image.file).is_file():
        return None
    words = {"vm": "--output", "container": "--container --output"}[kind]
    return LabError(
        f"the image file of the {'machines' if kind == 'vm' else 'containers'} does not exist: {image.file}",
        f"correct the inventory's file, or make it: dasklab minipve image {words} {quote(image.file)}",
    )
