"""Plan the API calls that bring images to the nodes and remove them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dasklab.errors import LabError
from dasklab.machines import containers, vms
from dasklab.machines.change import Chain, Change, Value
from dasklab.machines.observed import Observed, ObservedGuest
from dasklab.machines.topology import Image, Lab


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
            image = lab.image if content == vms.IMAGES else containers.image(lab)
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
        yield lab.name_of(lab.image), vms.IMAGES
    if any(guest.vmid not in remaining for guest in guests if guest.kind == "container"):
        yield lab.name_of(containers.image(lab)), containers.IMAGES


def _storing_node(observed: Observed, lab: Lab, node: str) -> str:
    """Return the node through which a node's images are stored: a shared storage gets each image once."""
    if lab.image_storage not in observed.nodes[node].shared:
        return node
    return next(name for name, other in observed.nodes.items() if lab.image_storage in other.shared)


def _call(observed: Observed, lab: Lab, node: str, image: Image, content: str) -> Change:
    name, why = lab.name_of(image), "the image of the guests"
    if content == vms.IMAGES and observed.version < (8, 4):
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
