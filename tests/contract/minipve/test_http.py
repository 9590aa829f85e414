"""HTTP: headers, formats of bodies, and requests that are refused before a handler sees them."""

from __future__ import annotations

import time

import pytest
import requests

from tests.contract.endpoint import Endpoint


def test_version_and_node(endpoint: Endpoint) -> None:
    assert endpoint.api().version.get()["version"][0] in "89"
    row = endpoint.api().nodes.get()[0]
    assert row["node"] == endpoint.node
    assert row["status"] == "online"
    assert len(row["ssl_fingerprint"].split(":")) == 32


def test_headers(endpoint: Endpoint) -> None:
    answer = endpoint.request("GET", "/version")
    assert answer.headers["Server"] == "pve-api-daemon/3.0"
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    assert answer.headers["Cache-Control"] == "max-age=0"
    assert answer.headers["Pragma"] == "no-cache"


def test_form_and_json_bodies_mean_the_same(endpoint: Endpoint) -> None:
    path = f"/nodes/{endpoint.node}/qemu"
    wrong = {"vmid": "abc", "onboot": "True"}
    form = endpoint.request("POST", path, data=wrong).json()["errors"]
    assert form == endpoint.request("POST", path, json=wrong).json()["errors"]
    assert form["onboot"] == "type check ('boolean') failed - got 'True'"
    real_boolean = endpoint.request("POST", path, json={"vmid": "abc", "onboot": True}).json()["errors"]
    assert "onboot" not in real_boolean


def test_query_overrides_body_and_dc_is_dropped(endpoint: Endpoint) -> None:
    path = f"/nodes/{endpoint.node}/qemu?vmid=abc&_dc=1"
    errors = endpoint.request("POST", path, data={"vmid": 100}).json()["errors"]
    assert errors == {"vmid": "type check ('integer') failed - got 'abc'"}


@pytest.mark.parametrize(
    ("kind", "status"), [("text/plain", 506), ("application/octet-stream", 506), ("application/json", 500)]
)
def test_other_content_types_are_refused(endpoint: Endpoint, kind: str, status: int) -> None:
    headers = endpoint.token | {"Content-Type": kind}
    answer = endpoint.request("POST", f"/nodes/{endpoint.node}/qemu", headers, data="no such body")
    assert answer.status_code == status


def test_too_large_body_is_refused(endpoint: Endpoint, real: bool) -> None:
    """pveproxy closes the connection during the transfer, which may lose its answer."""
    try:
        answer = endpoint.request("POST", f"/nodes/{endpoint.node}/qemu", data={"description": "x" * 600_000})
    except requests.ConnectionError:
        assert real, "the endpoint closed the connection without an answer"
        return
    assert answer.status_code == 501


def test_other_paths_and_formats(endpoint: Endpoint) -> None:
    answer = endpoint.request("GET", "/../../index.html")
    assert (answer.status_code, answer.reason) == (500, "no such file '/index.html'")
    assert endpoint.request("GET", "x/version").status_code == 501


def test_browsers_get_an_explanation(ours: Endpoint) -> None:
    base = ours.url.removesuffix("/api2/json")
    answer = requests.get(base, verify=ours.ca_file)
    assert (answer.status_code, "no web interface" in answer.text) == (200, True)
    answer = requests.get(f"{base}/api2/extjs/version", verify=ours.ca_file)
    assert (answer.status_code, answer.text) == (501, "minipve answers only below /api2/json/\n")


def test_list_for_a_single_value_is_named(endpoint: Endpoint) -> None:
    answer = endpoint.request("GET", "/cluster/nextid", params={"vmid": ["100", "101"]})
    assert answer.json()["errors"] == {"vmid": "type check ('integer') failed - got ARRAY"}


def test_wide_characters_in_an_error_are_answered_with_596(ours: Endpoint) -> None:
    answer = ours.request("GET", "/pools", params={"poolid": "snow☃"})
    assert answer.status_code == 596 or "invalid" in answer.text


@pytest.mark.parametrize(
    ("verb", "path", "more"),
    [
        ("POST", "/pools", {"data": {"poolid": "A" * 70_000}}),
        ("POST", "/access/ticket", {"data": {"username": "A" * 9_000, "password": "x"}}),
        ("POST", "/nodes/pve/qemu", {"data": {"vmid": 100, "pool": "A" * 70_000}}),
        ("GET", f"/nodes/{'A' * 4_000}/qemu", {}),
    ],
)
def test_clients_can_read_the_status_line_of_any_error(
    ours: Endpoint, verb: str, path: str, more: dict[str, dict[str, object]]
) -> None:
    answer = ours.request(verb, path, **more)
    assert answer.status_code >= 400 and 0 < len(answer.reason) <= 1024


def test_reads_are_quick(ours: Endpoint) -> None:
    session = requests.Session()
    paths = ["/version", "/cluster/resources", f"/nodes/{ours.node}/qemu", f"/nodes/{ours.node}/storage"]
    for path in [*paths, "/access/permissions", "/cluster/nextid", f"/nodes/{ours.node}/tasks"]:
        taken = []
        for _ in range(9):
            began = time.perf_counter()
            answer = session.get(ours.url + path, headers=ours.token, verify=ours.ca_file)
            assert answer.status_code == 200
            taken.append(time.perf_counter() - began)
        assert sorted(taken)[len(taken) // 2] < 0.05, f"{path}: {sorted(taken)}"  # 20 ms on an idle machine
