"""The facts file: made from PVE's published schema, complete for what is implemented, applied as PVE does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from minipve.api import make_schema, routing
from minipve.base.errors import ApiError
from minipve.config.rules import schema

PUBLISHED = Path(__file__).parents[6] / "shared/pve/pve-api-schema-9.1.json"


def test_schema_file_is_up_to_date() -> None:
    if not PUBLISHED.exists():
        pytest.skip(f"PVE's published schema is not at {PUBLISHED}")
    made = make_schema.generate(json.loads(PUBLISHED.read_text()), set(routing.load()), PUBLISHED.stem)
    assert make_schema.dumps(made) == schema.FILE.read_text()


def test_schema_describes_exactly_the_handlers() -> None:
    document = json.loads(schema.FILE.read_text())
    described = {(verb, path) for path, verbs in document["methods"].items() for verb in verbs}
    assert described == set(routing.load())


def test_schema_contains_no_descriptions() -> None:
    assert "description" not in schema.FILE.read_text().replace('"description"', "")


def test_values_are_converted() -> None:
    method = schema.method("POST", "/nodes/{node}/qemu")
    values = method.check({"node": "pve", "vmid": "100", "onboot": "1", "cores": "2", "cpulimit": "1.5"})
    assert values == {"node": "pve", "vmid": 100, "onboot": 1, "cores": 2, "cpulimit": "1.5"}


def test_single_values_and_arrays_are_converted() -> None:
    execute = schema.method("POST", f"{routing.VM}/agent/exec")
    assert execute.check({"node": "pve", "vmid": 100, "command": "ls"})["command"] == ["ls"]
    pools = schema.method("PUT", "/pools")
    assert pools.check({"poolid": "p", "vms": ["100", "101"]})["vms"] == "100,101"


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(ApiError) as refused:
        schema.method("POST", "/nodes/{node}/qemu").check({"node": "pve", "cores": "x", "net40": "virtio"})
    assert refused.value.status == 400
    assert set(refused.value.errors or {}) == {"vmid", "cores", "net40"}


@pytest.mark.parametrize(
    ("verb", "path", "template", "places"),
    [
        ("GET", "/version", "/version", {}),
        (
            "GET",
            "/nodes/pve/qemu/100/config",
            "/nodes/{node}/qemu/{vmid}/config",
            {"node": "pve", "vmid": "100"},
        ),
        (
            "DELETE",
            "/nodes/pve/storage/local/content/local:100/vm-100-disk-0.qcow2",
            "/nodes/{node}/storage/{storage}/content/{volume}",
            {"node": "pve", "storage": "local", "volume": "local:100/vm-100-disk-0.qcow2"},
        ),
    ],
)
def test_find_returns_template_and_values(
    verb: str, path: str, template: str, places: dict[str, str]
) -> None:
    assert routing.find(verb, path) == (template, places)


@pytest.mark.parametrize(
    ("verb", "path"), [("GET", "/nope"), ("POST", "/version"), ("GET", "/"), ("PUT", "/nodes")]
)
def test_find_returns_none_for_unknown_paths(verb: str, path: str) -> None:
    assert routing.find(verb, path) is None
