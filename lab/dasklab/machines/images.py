"""Which calls bring what guests are made of to the nodes that they are on, and take it away again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dasklab.errors import LabError
from dasklab.machines import containers, vms
from dasklab.machines.change import Chain, Change, Value
from dasklab.machines.observed import Observed, SeenGuest
from dasklab.machines.topology import Image, Lab


def make(seen: Observed, lab: Lab, left: Mapping[int, SeenGuest]) -> Iterator[Chain]:
    """An image a chain: what the guests that are not ``left`` need and their node has not.

    Raises:
        LabError: the node is too old to take one.
    """
    asked = ((node, image) for node in lab.nodes for image in _of(lab, left, node))
    wanted = dict.fromkeys((_home(seen, lab, node), *image) for node, image in asked)
    for node, name, content in wanted:
        if name not in seen.nodes[node].images:
            image = lab.image if content == vms.IMAGES else containers.image(lab)
            yield (_call(seen, lab, node, image, content),)


def remove(seen: Observed, lab: Lab) -> Iterator[Chain]:
    """Every image that carries the lab's mark, on every node."""
    for node in dict.fromkeys(_home(seen, lab, node) for node in seen.nodes):
        path = f"/nodes/{node}/storage/{lab.image_storage}/content/{lab.image_storage}"
        for content, name in sorted((content, name) for name, content in seen.nodes[node].images.items()):
            if name.startswith(lab.image_mark):
                yield (Change("DELETE", f"{path}:{content}/{name}", "the lab's image"),)


def _of(lab: Lab, left: Mapping[int, SeenGuest], node: str) -> Iterator[tuple[str, str]]:
    """Name and content of the images that a node's missing guests are made of."""
    here = [guest for guest in lab.guests if guest.node == node]
    if any(guest.kind == "vm" for guest in here) and lab.template_of(node) not in left:
        yield lab.name_of(lab.image), vms.IMAGES
    if any(guest.vmid not in left for guest in here if guest.kind == "container"):
        yield lab.name_of(containers.image(lab)), containers.IMAGES


def _home(seen: Observed, lab: Lab, node: str) -> str:
    """Where a node's images go: a storage that several nodes share gets them once."""
    if lab.image_storage not in seen.nodes[node].shared:
        return node
    return next(other for other, found in seen.nodes.items() if lab.image_storage in found.shared)


def _call(seen: Observed, lab: Lab, node: str, image: Image, content: str) -> Change:
    name, why = lab.name_of(image), "what the guests are made of"
    if content == vms.IMAGES and seen.version < (8, 4):
        raise LabError(
            f"Proxmox VE {seen.version[0]}.{seen.version[1]} takes no image by its API (8.4 and later do)",
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
