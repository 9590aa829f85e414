"""Draw the topology of a lab: hosts, their three NICs and the two bridges, as SVG or Mermaid text.

Management (``net0``) is at the bottom, the links under test (``net1``) are at the top, with capture NICs
(``net2``) dashed beside them. A drawing contains what the inventory requests, not what exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.settings.nic import LAB_SLOT, TITLES
from dasklab.terminal import counted

HOST_WIDTH, HOST_HEIGHT, GAP = 132, 58, 18
LAB_BRIDGE_Y, HOSTS_Y, MANAGEMENT_Y = 34, 124, 226
HEIGHT = 262
CAPTURE_OFFSET = 26  # px to the right of the link under test

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
  .name { font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .left { text-anchor: end } .right { text-anchor: start }
  .host { fill: #f6f8fa; stroke: #59636e }
  .bridge { stroke-width: 6; stroke-linecap: round }
  .lab { stroke: #b35900 } .management { stroke: #59636e } .capture { stroke-dasharray: 4 3 }
  line { stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .host { fill: #151b23; stroke: #9198a1 }
    .lab { stroke: #f0883e } .management { stroke: #9198a1 }
  }
"""


@dataclass(frozen=True)
class DrawnHost:
    """The facts of a host in a drawing; ``link`` is the NIC model and rate cap of its lab link."""

    name: str
    size: str
    link: str
    captures: bool


@dataclass(frozen=True)
class Topology:
    """A lab as it is drawn: ``lab_bridge`` carries the links under test."""

    lab_bridge: str
    management_bridge: str
    hosts: tuple[DrawnHost, ...]


def topology_of(inventory: Inventory) -> Topology:
    """Collect what the drawing needs. Hosts that the lab does not create have no sizes and no NIC models."""
    names = inventory.hosts()
    return Topology(
        lab_bridge=str(inventory.optional(names[0], "lab_bridge") or "the links under test"),
        management_bridge=str(inventory.optional(names[0], "lab_management_bridge") or "management"),
        hosts=tuple(_host(name, inventory.optional(name, "guest")) for name in names),
    )


def _host(name: str, guest: dict[str, Any] | None) -> DrawnHost:
    if guest is None:
        return DrawnHost(name, "", "", captures=False)
    nic = guest["nics"][LAB_SLOT]
    cap = f", {nic['rate_mbit']:g} Mbit/s" if nic.get("rate_mbit") else ""
    return DrawnHost(
        name=name,
        size=f"{counted(guest['cores'], 'core')}, {guest['memory_mb'] / 1024:g} GiB",
        link=TITLES[nic["model"]] + cap,
        captures=len(guest["nics"]) > LAB_SLOT + 1,
    )


def svg(topology: Topology) -> str:
    """Return the drawing as an SVG document that follows the reader's colour scheme."""
    width = len(topology.hosts) * (HOST_WIDTH + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img">',
        f"<title>The lab: {escape(', '.join(host.name for host in topology.hosts))}</title>",
        f"<style>{STYLE}</style>",
        _line(GAP, LAB_BRIDGE_Y, width - GAP, LAB_BRIDGE_Y, "bridge lab"),
        _text(width / 2, LAB_BRIDGE_Y - 14, f"{topology.lab_bridge}: the links under test", "name"),
        _line(GAP, MANAGEMENT_Y, width - GAP, MANAGEMENT_Y, "bridge management"),
        _text(width / 2, MANAGEMENT_Y + 22, f"{topology.management_bridge}: management", "small"),
    ]
    for position, host in enumerate(topology.hosts):
        parts += _host_parts(host, GAP + position * (HOST_WIDTH + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _host_parts(host: DrawnHost, x: int) -> list[str]:
    middle = x + HOST_WIDTH / 2
    parts = [
        _line(middle, LAB_BRIDGE_Y, middle, HOSTS_Y, "lab"),
        _line(middle, HOSTS_Y + HOST_HEIGHT, middle, MANAGEMENT_Y, "management"),
        f'<rect class="host" x="{x}" y="{HOSTS_Y}" width="{HOST_WIDTH}" height="{HOST_HEIGHT}" rx="6"/>',
        _text(middle, HOSTS_Y + 26, host.name, "name"),
        _text(middle, HOSTS_Y + 44, host.size, "small"),
        _text(middle - 6, HOSTS_Y - 40, host.link, "small left"),
        _text(middle - 6, HOSTS_Y - 10, "net1", "small left"),
        _text(middle - 6, HOSTS_Y + HOST_HEIGHT + 20, "net0", "small left"),
    ]
    if host.captures:
        capture = middle + CAPTURE_OFFSET
        parts += [
            _line(capture, LAB_BRIDGE_Y, capture, HOSTS_Y, "lab capture"),
            _text(capture + 6, HOSTS_Y - 10, "net2", "small right"),
            _text(capture + 6, HOSTS_Y - 40, "capture", "small right"),
        ]
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(text)}</text>' if text else ""


def mermaid(topology: Topology) -> str:
    """Return the drawing as a Mermaid flow chart, for pages that render it."""
    lines = [
        "flowchart TB",
        f'  lab(["{topology.lab_bridge}: the links under test"])',
        f'  management(["{topology.management_bridge}: management"])',
    ]
    for number, host in enumerate(topology.hosts):
        label = "<br/>".join(filter(None, (f"<b>{host.name}</b>", host.size)))
        lines.append(f'  lab ---|"net1 {host.link}"| h{number}["{label}"]')
        if host.captures:
            lines.append(f'  lab -.-|"net2 capture"| h{number}')
        lines.append(f"  h{number} ---|net0| management")
    return "\n".join(lines) + "\n"


FORMATS = {"svg": svg, "mermaid": mermaid}
