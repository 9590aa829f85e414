"""Lists that are always empty here: jobs, HA resources, appliances, disks.

Exporters, inventory plugins and web pages ask for them, and PVE answers with an empty list, too.
"""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.node.call import Call


@route("GET", "/cluster/backup")
@route("GET", "/cluster/ha/resources")
@route("GET", "/cluster/ha/rules")
@route("GET", "/cluster/jobs/realm-sync")
@route("GET", "/cluster/replication")
@route("GET", "/cluster/sdn/controllers")
@route("GET", "/cluster/sdn/dns")
@route("GET", "/cluster/sdn/ipams/{ipam}/status")
@route("GET", "/nodes/{node}/aplinfo")
@route("GET", "/nodes/{node}/disks/list")
@route("GET", "/nodes/{node}/replication")
def nothing(call: Call) -> list[dict[str, Any]]:
    return []
