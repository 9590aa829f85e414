"""configured.json: the settings of links and bridge, as hypervisor, node and guests report them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from dasklab.model.files.quantities import Amount, Count
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict
from dasklab.model.settings.impairments import AMOUNTS


class Queue(Strict):
    """A queue discipline in the words of ``tc -s -j qdisc show``."""

    model_config = ConfigDict(extra="allow")

    kind: str
    dev: str | None = None
    parent: str = "root"
    packets: Count = 0
    drops: Count = 0
    options: dict[str, Any] = {}


class ConfiguredImpairment(Strict):
    """A queue or policer in a guest's kernel.

    Its amounts are those of ``dasklab.model.settings.impairments``; an amount that the file does not name is
    0, so that a file written before the registry had a row is still read. ``by`` is the kernel's mechanism:
    netem, tbf or police.
    """

    model_config = ConfigDict(extra="allow")

    direction: Literal["egress", "ingress"]
    peer: str | None
    policer: bool
    by: str | None = None

    @property
    def amounts(self) -> dict[str, float]:
        """Every impairment's amount, in the order of the registry."""
        return {key: float((self.model_extra or {}).get(key, 0)) for key in AMOUNTS}


class ConfiguredHost(Strict):
    """One host's lab link; ``net`` is the hypervisor's ``netN``, ``node`` the node that the host runs on."""

    interface: str
    driver: str
    mtu: Count
    offloads: dict[str, bool]
    congestion_control: str
    link: tuple[ConfiguredImpairment, ...] = ()
    qdisc_before: tuple[Queue, ...] = ()
    qdisc_after: tuple[Queue, ...] = ()
    net: str | None = None
    node: str | None = None


class Bridge(Strict):
    """The lab bridge on its node."""

    name: str
    ageing_s: Amount


class Configured(Document):
    """The settings that were read back; ``rate_method`` is how the node limits what a guest sends."""

    FILE: ClassVar[str] = "configured.json"

    hosts: dict[str, ConfiguredHost] = {}
    bridge: Bridge | None = None
    rate_method: str | None = None
