"""The lock of the SDN configuration, rollback, and subnets of vnets."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.contract.endpoint import Endpoint, refused


@pytest.fixture(scope="module")
def sdn(own_for_all: Endpoint) -> Any:
    """The SDN configuration as root, with an applied zone and vnet."""
    sdn = own_for_all.root().cluster.sdn
    sdn.zones.post(zone="lab", type="simple")
    sdn.vnets.post(vnet="lab0", zone="lab")
    apply(own_for_all)
    return sdn


def apply(endpoint: Endpoint, **options: Any) -> None:
    """Apply the configuration, and wait for the reload on the node, whose UPID no answer contains."""
    root = endpoint.root()
    endpoint.done(root.cluster.sdn.put(**options), root)
    reload = root.nodes("pve").tasks.get(typefilter="srvreload", source="all", limit=1)[0]
    endpoint.done(reload["upid"], root)


def test_lock_refuses_changes_without_its_token(sdn: Any) -> None:
    token = sdn.lock.post()
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", token)
    error = refused(sdn.vnets.post, vnet="lab1", zone="lab")
    assert error.content.startswith("create sdn vnet object failed: invalid lock token provided!")
    assert refused(sdn.lock.post).status_code == 500
    sdn.vnets.post(vnet="lab1", zone="lab", **{"lock-token": token})
    sdn.vnets("lab1").delete(**{"lock-token": token})
    assert refused(sdn.lock.delete, **{"lock-token": "another"}).status_code == 500
    sdn.lock.delete(**{"lock-token": token})
    sdn.vnets("lab0").put(alias="free")
    sdn.rollback.post()


def test_forced_release_needs_no_token(sdn: Any) -> None:
    sdn.lock.post()
    sdn.lock.delete(force=1)
    sdn.lock.delete(force=1)


def test_lock_is_refused_with_pending_changes(sdn: Any) -> None:
    sdn.vnets("lab0").put(alias="pending")
    assert refused(sdn.lock.post).content.startswith(
        "could not acquire lock for SDN config: configuration has pending changes"
    )
    token = sdn.lock.post(**{"allow-pending": 1})
    sdn.rollback.post(**{"lock-token": token})
    assert "alias" not in sdn.vnets("lab0").get()
    sdn.lock.delete(**{"lock-token": sdn.lock.post()})  # the rollback has released the first lock


def test_apply_releases_the_lock_unless_told_otherwise(own_for_all: Endpoint, sdn: Any) -> None:
    token = sdn.lock.post()
    apply(own_for_all, **{"lock-token": token, "release-lock": 0})
    assert refused(sdn.lock.post).status_code == 500
    apply(own_for_all, **{"lock-token": token})
    sdn.lock.delete(**{"lock-token": sdn.lock.post()})


def test_lock_survives_a_restart(start: Callable[..., Endpoint], sdn: Any) -> None:
    token = sdn.lock.post()
    assert start().root().cluster.sdn.vnets("lab0").get()["zone"] == "lab"
    assert refused(sdn.lock.post).status_code == 500
    sdn.lock.delete(**{"lock-token": token})


def test_gateway_of_a_subnet_is_an_address_of_the_vnet(own_for_all: Endpoint, sdn: Any) -> None:
    subnets = sdn.vnets("lab0").subnets
    subnets.post(subnet="10.9.0.0/24", type="subnet", gateway="10.9.0.1", snat=1)
    row = subnets("lab-10.9.0.0-24").get()
    derived = {"cidr": "10.9.0.0/24", "network": "10.9.0.0", "mask": "24", "zone": "lab", "vnet": "lab0"}
    assert row.items() >= (derived | {"gateway": "10.9.0.1", "snat": 1}).items()
    assert [row["state"] for row in subnets.get(pending=1)] == ["new"]
    apply(own_for_all)
    assert addresses(own_for_all, "lab0") == ["10.9.0.1/24"]
    subnets("lab-10.9.0.0-24").put(delete="gateway")
    apply(own_for_all)
    assert addresses(own_for_all, "lab0") == []
    answer = request(own_for_all, "DELETE", "/cluster/sdn/vnets/lab0")
    assert (answer.status_code, "vnet: Can't delete vnet if subnets exists" in answer.text) == (500, True)
    subnets("lab-10.9.0.0-24").delete()
    assert subnets.get() == []


def request(endpoint: Endpoint, verb: str, path: str, **data: Any) -> requests.Response:
    """Send a plain request as root, since proxmoxer hides all but the first line of a message."""
    facts = json.loads((endpoint.state / "endpoint.json").read_text())
    token = f"PVEAPIToken={facts['user']}!{facts['token_id']}={facts['token_secret']}"
    return endpoint.request(verb, path, {"Authorization": token}, **({"data": data} if data else {}))


def addresses(endpoint: Endpoint, bridge: str) -> list[str]:
    words = [f"{endpoint.state}/enter-shell", "-c", f"ip -4 -o address show dev {bridge}"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[3] for line in lines]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subnet": "10.9.0.0/24", "gateway": "10.8.0.1"}, "gateway: 10.8.0.1 is not in subnet 10.9.0.0/24"),
        (
            {"subnet": "10.9.0.0/24", "dhcp-range": "start-address=10.9.0.2,end-address=10.9.0.9"},
            "dhcp-range: not supported here",
        ),
        ({"subnet": "fd00::/64", "gateway": "fd00::1"}, "gateway: only an IPv4 address is supported here"),
    ],
)
def test_invalid_subnets_are_refused(
    own_for_all: Endpoint, sdn: Any, options: dict[str, str], complaint: str
) -> None:
    answer = request(own_for_all, "POST", "/cluster/sdn/vnets/lab0/subnets", type="subnet", **options)
    assert (answer.status_code, complaint in answer.text) == (500, True), answer.text
    assert sdn.vnets("lab0").subnets.get() == []


def test_subnet_is_changed_only_through_its_own_vnet(own_for_all: Endpoint, sdn: Any) -> None:
    """The rights of a call are those on the vnet in its path."""
    sdn.zones.post(zone="other", type="simple")
    sdn.vnets.post(vnet="other0", zone="other")
    sdn.vnets("other0").subnets.post(subnet="10.6.0.0/24", type="subnet")
    path = "/cluster/sdn/vnets/lab0/subnets/other-10.6.0.0-24"
    for verb, data in (("PUT", {"gateway": "10.6.0.9"}), ("DELETE", {})):
        answer = request(own_for_all, verb, path, **data)
        assert answer.status_code >= 400
        assert "vnet: wrong vnet" in answer.json()["message"]
    assert sdn.vnets("other0").subnets("other-10.6.0.0-24").get()["vnet"] == "other0"
    moved = request(own_for_all, "PUT", "/cluster/sdn/vnets/other0", zone="lab")
    assert "zone: can't change zone if subnets exist" in moved.json()["message"]
    sdn.vnets("other0").subnets("other-10.6.0.0-24").delete()
    sdn.vnets("other0").delete()
    sdn.zones("other").delete()


def test_vnet_moves_only_to_a_zone_of_the_caller(own_for_all: Endpoint, sdn: Any) -> None:
    sdn.zones.post(zone="other", type="simple")
    root = own_for_all.root()
    root.access.users.post(userid="net@pve")
    secret = root.access.users("net@pve").token("tt").post(privsep=0)["value"]
    headers = {"Authorization": f"PVEAPIToken=net@pve!tt={secret}"}
    root.access.acl.put(path="/sdn/zones/lab", users="net@pve", roles="PVESDNAdmin")
    path = "/cluster/sdn/vnets/lab0"
    answer = own_for_all.request("PUT", path, headers, data={"zone": "other"})
    assert (answer.status_code, sdn.vnets("lab0").get()["zone"]) == (403, "lab")
    assert answer.reason == "Permission check failed (/sdn/zones/other, SDN.Allocate)"
    assert own_for_all.request("PUT", path, headers, data={"delete": "zone"}).status_code >= 400
    root.access.users("net@pve").delete()
    sdn.zones("other").delete()
