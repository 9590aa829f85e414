"""The drawing of a lab: every host, NIC and cap is in it, and the README's picture is current."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.machines.inventory.drawing import DrawnHost, Topology, mermaid, svg, topology_of
from dasklab.paths import SHARE

CAPPED = DrawnHost("worker-1", "1 core, 2 GiB", "E1000, 100 Mbit/s", captures=False)
CAPTURING = DrawnHost("client", "2 cores, 1.5 GiB", "VirtIO", captures=True)
TOPOLOGY = Topology("vmbr1", "vmbr0", (CAPTURING, CAPPED))


def texts(document: str) -> list[str]:
    return [
        element.text or ""
        for element in ElementTree.fromstring(document).iter()
        if element.tag.endswith("}text")
    ]


def test_svg_contains_every_fact() -> None:
    drawn = texts(svg(TOPOLOGY))
    assert {"client", "2 cores, 1.5 GiB", "VirtIO", "worker-1", "E1000, 100 Mbit/s"} <= set(drawn)
    assert drawn.count("net0") == drawn.count("net1") == 2
    assert drawn.count("net2") == drawn.count("capture") == 1


def test_mermaid_contains_every_link() -> None:
    lines = mermaid(TOPOLOGY).splitlines()
    assert sum("net1" in line for line in lines) == sum("net0" in line for line in lines) == 2
    assert any('"net1 E1000, 100 Mbit/s"' in line for line in lines)
    assert sum("net2 capture" in line for line in lines) == 1


def test_names_are_escaped() -> None:
    odd = Topology("<br>", "vmbr0", (CAPPED,))
    assert "<br>: the links under test" in texts(svg(odd))


@pytest.mark.parametrize("example", ["proxmox", "existing", "many", "cluster"])
def test_every_example_can_be_drawn(example: str) -> None:
    inventory = Inventory(SHARE / "inventory" / "examples" / example / "hosts.yml")
    assert set(inventory.hosts()) <= set(texts(svg(topology_of(inventory))))


def test_picture_of_the_architecture_is_current() -> None:
    picture = SHARE / "docs" / "lab.svg"
    result = CliRunner().invoke(main, ["graph", "-i", str(DEFAULT)])
    assert result.exit_code == 0, result.output
    assert picture.read_text() == result.output, "run: dasklab graph > docs/lab.svg"
    assert "../lab.svg" in (SHARE / "docs" / "explanation" / "architecture.md").read_text()
