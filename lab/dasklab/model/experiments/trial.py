"""One trial: the settings of a cell applied to the lab of the inventory, with every setting resolved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict
from dasklab.model.settings import packages
from dasklab.model.settings.impairments import KERNEL_FEATURES, kernel_features
from dasklab.model.settings.link import Link
from dasklab.model.settings.nic import MODELS, GuestKind, NicOverride, NicSettings
from dasklab.model.settings.simulated import SimulatedSetup
from dasklab.model.settings.trial_settings import Scalar, Settings, SharedSettings
from dasklab.model.settings.variants import ResolvedScheduler


class Setup(Strict):
    """The lab of the inventory, to which the settings of a trial are applied.

    Attributes:
        hosts: the names of all hosts.
        kinds: the kinds of guest that the inventory names an image for.
        guests: the kind of each host; empty if no hypervisor makes the hosts.
        nics: the lab NIC of each host; empty if no hypervisor makes the hosts.
        offloads: the offloads that the inventory requires; other offloads stay as the driver sets them.
        bridge: whether there is a lab bridge whose mode can be set.
        kernel_lacks: what the kernel of guests of a kind is known to lack: ``netem``, ``police``.
        simulated: where the costs come from, if the lab is a simulated one.
    """

    hosts: tuple[str, ...]
    kinds: tuple[GuestKind, ...] = ()
    guests: dict[str, GuestKind] = {}
    nics: dict[str, NicSettings] = {}
    offloads: dict[str, dict[str, bool]] = {}
    bridge: bool = True
    kernel_lacks: dict[GuestKind, tuple[str, ...]] = {}
    simulated: SimulatedSetup | None = None

    def is_same_lab(self, other: Setup) -> bool:
        """Whether both describe the same lab. What its kernel lacks may have become known in between."""
        return self.model_copy(update={"kernel_lacks": other.kernel_lacks}) == other

    def for_kind(self, kind: GuestKind) -> Setup:
        """Return the same lab with guests of one kind."""
        nics = {host: nic.for_kind(kind) for host, nic in self.nics.items()}
        return self.model_copy(update={"guests": dict.fromkeys(self.guests, kind), "nics": nics})

    def requested_guests(self, requested: Settings) -> dict[str, GuestKind]:
        """Return the kind of each host under these settings."""
        kinds = {host: guest.kind for host, guest in requested.guests.items()}
        return {host: kinds.get(host, kind) for host, kind in self.guests.items()}

    def requested_nics(self, requested: Settings) -> dict[str, NicSettings]:
        """Return the lab NIC of each host under these settings.

        A host of another kind than in the inventory has the default model of that kind.
        """
        kinds = self.requested_guests(requested)
        nics = {host: self.nics[host].for_kind(kind) for host, kind in kinds.items()}
        return {host: requested.nics.get(host, NicOverride()).apply_to(nic) for host, nic in nics.items()}

    def unsupported(self, requested: Settings) -> Iterator[str]:
        """Yield a reason for each of the settings that this lab cannot do."""
        missing = [host for host in {**requested.guests, **requested.nics} if host not in self.nics]
        if missing:
            yield f"NICs or kind of {', '.join(missing)}: no hypervisor makes these machines"
        yield from self._missing_kinds(requested)
        yield from self._missing_models(requested)
        if requested.bridge == "flooding" and not self.bridge:
            yield "bridge flooding: these machines have no hypervisor whose bridge could be set"
        yield from self._missing_kernel_features(requested)
        yield from packages.unsupported(requested.packages)
        if self.simulated:
            yield from self.simulated.unsupported(requested)
            yield from self._uncalibrated_nics(requested)

    def _uncalibrated_nics(self, requested: Settings) -> Iterator[str]:
        """A simulated lab knows the costs of the calibrated trial's NIC models only."""
        nics = self.requested_nics(requested)
        models = {host: nic.model for host, nic in nics.items() if nic.model != self.nics[host].model}
        for model in sorted(set(models.values())):
            hosts = ", ".join(host for host, other in models.items() if other == model)
            yield f"NIC {model} of {hosts}: its costs were not calibrated"

    def _missing_kinds(self, requested: Settings) -> Iterator[str]:
        kinds = {guest.kind for guest in requested.guests.values()}
        for kind in sorted(kinds - {*self.kinds, *self.guests.values()}):
            yield f"guests of kind {kind}: the inventory names no image for them"

    def _missing_kernel_features(self, requested: Settings) -> Iterator[str]:
        kinds = self.requested_guests(requested)
        lacking = {
            name: None
            for host, link in requested.links.items()
            for name in kernel_features(link.model_dump())
            if host in kinds and name in self.kernel_lacks.get(kinds[host], ())
        }
        for name in lacking:
            yield f"this kernel has no {KERNEL_FEATURES[name]}; use virtual machines"

    def _missing_models(self, requested: Settings) -> Iterator[str]:
        kinds = self.requested_guests(requested)
        for host, nic in requested.nics.items():
            kind = kinds.get(host)
            if kind and nic.model and nic.model not in MODELS[kind]:
                allowed = ", ".join(sorted(MODELS[kind]))
                yield f"NIC {nic.model} of {host}: it is a {kind}, which has {allowed}"


NULL_TRIAL = "null trial"


class RequestedTrial(Document, SharedSettings):
    """trial.json: one trial, with host names instead of aliases. Links without an impairment are left out.

    Attributes:
        block: the number of the block, from 1.
        baseline, null: whether it is the baseline, or the exact copy of it.
        factors: the level of each factor.
        resolved_scheduler: the requested scheduler, with the settings and the preload of its variant.
        environment: the packages whose version differs from the pinned one.
        tested: the hosts whose link or kind the experiment sets in this trial.
        unsupported: why this lab cannot do the trial; then it is not tried.
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
    nics: dict[str, NicSettings]
    offloads: dict[str, dict[str, bool]] = {}
    tested: tuple[str, ...]
    captured_repeats: int
    unsupported: tuple[str, ...] = ()

    @property
    def cell_title(self) -> str:
        """The cell as readers see it: the null trial is an exact copy of the baseline with its own row."""
        return NULL_TRIAL if self.null else self.cell
