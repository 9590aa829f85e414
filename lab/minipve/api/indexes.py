"""Indexes: the names below a path, for clients that browse the API."""

from __future__ import annotations

from minipve.api.routing import CT, VM, children, route
from minipve.node.call import Call

_INDEXES = {  # path -> key of the name in a row, as in PVE
    "/access": "subdir",
    "/cluster": "name",
    "/cluster/ha": "id",
    "/cluster/ha/status": "name",
    "/cluster/jobs": "subdir",
    "/cluster/notifications": "name",
    "/cluster/notifications/endpoints": "name",
    "/nodes/{node}": "name",
    "/nodes/{node}/apt": "id",
    "/nodes/{node}/capabilities": "name",
    "/nodes/{node}/capabilities/qemu": "name",
    "/nodes/{node}/disks": "name",
    VM: "subdir",
    CT: "subdir",
    f"{CT}/status": "subdir",
    f"{VM}/status": "subdir",
    f"{VM}/agent": "name",
    "/nodes/{node}/storage/{storage}": "subdir",
}


def _declare(path: str, key: str) -> None:
    @route("GET", path)
    def index(call: Call) -> list[dict[str, str]]:
        return [{key: name} for name in children(path)]


for _path, _key in _INDEXES.items():
    _declare(_path, _key)
