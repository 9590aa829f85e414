"""One trial: what an experiment asks, laid over the lab as its inventory has it; every setting resolved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from lab.model.document import Document
from lab.model.experiment import Scalar, Settings, Shared
from lab.model.link import Link
from lab.model.nic import MODELS, Card, GuestKind
from lab.model.strict import Strict


class Setup(Strict):
    """The lab as its inventory has it: what the settings of a trial are laid over.

    ``guests`` are the hosts' kinds and ``nics`` their lab NICs, none where no hypervisor makes them;
    ``offloads`` what the inventory wants of a host's lab NIC, none being whatever its driver does.
    """

    hosts: tuple[str, ...]
    guests: dict[str, GuestKind] = {}
    nics: dict[str, Card] = {}
    offloads: dict[str, dict[str, bool]] = {}
    bridge: bool = True

    def cannot(self, asked: Settings) -> Iterator[str]:
        """What of these settings this lab cannot do, in words."""
        missing = [host for host in asked.nics if host not in self.nics]
        if missing:
            yield f"NICs of {', '.join(missing)}: no hypervisor makes these machines"
        yield from self._no_such_models(asked)
        if asked.bridge == "flooding" and not self.bridge:
            yield "bridge flooding: these machines have no hypervisor whose bridge could be set"

    def _no_such_models(self, asked: Settings) -> Iterator[str]:
        for host, nic in asked.nics.items():
            kind = self.guests.get(host)
            if kind and nic.model and nic.model not in MODELS[kind]:
                allowed = ", ".join(sorted(MODELS[kind]))
                yield f"NIC {nic.model} of {host}: it is a {kind}, which has {allowed}"


class Trial(Document, Shared):
    """The content of trial.json. Hosts are named, aliases are gone; links that are clear are left out.

    ``tested`` are the hosts whose link the experiment names in this trial, ``unsupported`` says why this lab
    cannot do it; then it is not tried.
    """

    FILE: ClassVar[str] = "trial.json"

    experiment: str
    trial: str
    cell: str
    block: int
    baseline: bool
    null: bool
    factors: dict[str, Scalar]
    links: dict[str, Link]
    nics: dict[str, Card]
    offloads: dict[str, dict[str, bool]] = {}
    tested: tuple[str, ...]
    captured_runs: int
    unsupported: tuple[str, ...] = ()
