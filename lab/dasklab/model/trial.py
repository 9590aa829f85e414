"""One trial: what an experiment asks, laid over the lab as its inventory has it; every setting resolved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dasklab.model import packages
from dasklab.model.document import Document
from dasklab.model.experiment import Scalar, Settings, Shared
from dasklab.model.link import Link
from dasklab.model.nic import MODELS, Card, GuestKind, NicOverride
from dasklab.model.simulated import Simulated
from dasklab.model.strict import Strict
from dasklab.model.variants import ResolvedScheduler


class Setup(Strict):
    """The lab as its inventory has it: what the settings of a trial are laid over.

    ``guests`` are the hosts' kinds and ``nics`` their lab NICs, none where no hypervisor makes them,
    ``kinds`` those that there is an image of; ``offloads`` what the inventory wants of a lab NIC, none being
    whatever its driver does. A lab in virtual time says in ``simulated`` whose costs it has.
    """

    hosts: tuple[str, ...]
    kinds: tuple[GuestKind, ...] = ()
    guests: dict[str, GuestKind] = {}
    nics: dict[str, Card] = {}
    offloads: dict[str, dict[str, bool]] = {}
    bridge: bool = True
    simulated: Simulated | None = None

    def of_kind(self, kind: GuestKind) -> Setup:
        """The same lab with all guests of one kind."""
        cards = {host: card.of_kind(kind) for host, card in self.nics.items()}
        return self.model_copy(update={"guests": dict.fromkeys(self.guests, kind), "nics": cards})

    def asked_guests(self, asked: Settings) -> dict[str, GuestKind]:
        """Each host's kind, with these settings."""
        given = {host: guest.kind for host, guest in asked.guests.items()}
        return {host: given.get(host, kind) for host, kind in self.guests.items()}

    def asked_nics(self, asked: Settings) -> dict[str, Card]:
        """Each host's lab NIC, with these settings: a host of another kind has that kind's plain one."""
        cards = {host: self.nics[host].of_kind(kind) for host, kind in self.asked_guests(asked).items()}
        return {host: asked.nics.get(host, NicOverride()).on(card) for host, card in cards.items()}

    def cannot(self, asked: Settings) -> Iterator[str]:
        """What of these settings this lab cannot do, in words."""
        missing = [host for host in {**asked.guests, **asked.nics} if host not in self.nics]
        if missing:
            yield f"NICs or kind of {', '.join(missing)}: no hypervisor makes these machines"
        yield from self._no_such_kinds(asked)
        yield from self._no_such_models(asked)
        if asked.bridge == "flooding" and not self.bridge:
            yield "bridge flooding: these machines have no hypervisor whose bridge could be set"
        yield from packages.cannot(asked.packages)
        if self.simulated:
            yield from self.simulated.cannot(asked)
            yield from self._other_cards(asked)

    def _other_cards(self, asked: Settings) -> Iterator[str]:
        """Cards whose cost nobody measured: the calibrated trial had others."""
        cards = self.asked_nics(asked)
        other = {host: card.model for host, card in cards.items() if card.model != self.nics[host].model}
        for model in sorted(set(other.values())):
            hosts = ", ".join(host for host, found in other.items() if found == model)
            yield f"NIC {model} of {hosts}: what it costs was not calibrated"

    def _no_such_kinds(self, asked: Settings) -> Iterator[str]:
        for kind in sorted(
            {guest.kind for guest in asked.guests.values()} - {*self.kinds, *self.guests.values()}
        ):
            yield f"guests of kind {kind}: the inventory names no image to make them of"

    def _no_such_models(self, asked: Settings) -> Iterator[str]:
        kinds = self.asked_guests(asked)
        for host, nic in asked.nics.items():
            kind = kinds.get(host)
            if kind and nic.model and nic.model not in MODELS[kind]:
                allowed = ", ".join(sorted(MODELS[kind]))
                yield f"NIC {nic.model} of {host}: it is a {kind}, which has {allowed}"


class Trial(Document, Shared):
    """The content of trial.json. Hosts are named, aliases are gone; links that are clear are left out.

    ``resolved_scheduler`` holds the settings and the preload of the requested variant, ``environment`` the
    packages whose version differs from the pinned one, ``tested`` are the hosts whose link the
    experiment names in this trial, ``unsupported`` says why this lab cannot do it; then it is not tried.
    """

    FILE: ClassVar[str] = "trial.json"

    experiment: str
    trial: str
    cell: str
    block: int
    baseline: bool
    null: bool
    factors: dict[str, Scalar]
    resolved_scheduler: ResolvedScheduler = ResolvedScheduler()
    environment: dict[str, str] = {}
    links: dict[str, Link]
    guests: dict[str, GuestKind] = {}
    nics: dict[str, Card]
    offloads: dict[str, dict[str, bool]] = {}
    tested: tuple[str, ...]
    captured_runs: int
    unsupported: tuple[str, ...] = ()
