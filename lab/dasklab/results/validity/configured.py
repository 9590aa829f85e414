"""Compare what hypervisor, node and guests report (configured) with what the trial requests; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Configured, ConfiguredHost, ConfiguredImpairment
from dasklab.model.settings.impairments import IMPAIRMENTS, QUEUES, drops_at_once, queued, read_back, sides
from dasklab.model.settings.link import Link
from dasklab.model.settings.nic import DRIVERS, NicSettings, net_from_pve

RELATIVE = 1e-3  # rounding by tc and the hypervisor may change an amount by this share ...
ABSOLUTE = 1e-3  # ... or by this much of its unit
Amounts = Mapping[str, float]
Scope = tuple[str, str | None, bool]  # direction, peer, policer


def differences(trial: RequestedTrial, configured: Configured) -> Iterator[str]:
    """Yield a line for each item that is configured otherwise than requested."""
    bridge = configured.bridge
    if bridge is not None and (bridge.ageing_s == 0) != (trial.bridge == "flooding"):
        yield f"bridge: requested {trial.bridge}, but its ageing time is {bridge.ageing_s:g} s"
    for host in dict.fromkeys([*trial.nics, *trial.links, *trial.offloads]):
        if host not in configured.hosts:
            yield f"{host}: its link was not read back"
    for host, link in configured.hosts.items():
        if host in trial.nics:
            yield from _nic(host, trial.nics[host], link, bridge.name if bridge else None)
        yield from _offloads(host, trial.offloads.get(host, {}), link.offloads)
        yield from _impairments(host, trial.links.get(host, Link()), link)
        yield from _changes_during_repeats(host, link)


def _nic(host: str, requested: NicSettings, link: ConfiguredHost, bridge: str | None) -> Iterator[str]:
    """Compare the NIC with what the hypervisor has, and with what the guest's kernel sees."""
    if link.driver not in DRIVERS[requested.model]:
        yield f"{host}: requested NIC {requested.model}, the guest's driver is {link.driver or 'unknown'}"
    if link.net is None:
        yield f"{host}: the hypervisor did not report its NIC"
        return
    nic = net_from_pve(link.net)
    if nic.model != requested.model:
        yield f"{host}: requested NIC {requested.model}, configured {nic.model}"
    if not _near(requested.rate_mbit, nic.rate_mbit):
        cap = f"{nic.rate_mbit:.1f} Mbit/s" if nic.rate_mbit else "no cap"
        yield f"{host}: requested a cap of {requested.rate_mbit:g} Mbit/s, configured {cap}"
    if bridge is not None and nic.bridge != bridge:
        yield f"{host}: its NIC is on bridge {nic.bridge}, the lab's is {bridge}"


def _offloads(host: str, requested: Mapping[str, bool], configured: Mapping[str, bool]) -> Iterator[str]:
    words = {True: "on", False: "off", None: "unknown"}
    for name, value in requested.items():
        if configured.get(name) != value:
            yield f"{host}: requested offload {name} {words[value]}, it is {words[configured.get(name)]}"


def _impairments(host: str, link: Link, configured: ConfiguredHost) -> Iterator[str]:
    """Each requested queue and policer exists with its amounts, and no other does."""
    requested = _requested(link)
    existing = {_scope(impairment): impairment.amounts for impairment in configured.link}
    for scope, amounts in requested.items():
        if scope not in existing:
            yield f"{host}, {_place(scope)}: requested {_words(amounts)}, nothing is configured"
            continue
        for impairment in IMPAIRMENTS:
            key, unit = impairment.key, impairment.unit.sign
            if not _near(amounts[key], existing[scope][key]):
                values = f"requested {amounts[key]:g} {unit}, configured {existing[scope][key]:g} {unit}"
                yield f"{host}, {_place(scope)}: {key}: {values}"
    for scope in existing.keys() - requested.keys():
        yield f"{host}, {_place(scope)}: {_words(existing[scope])} is configured, but was not requested"


def _changes_during_repeats(host: str, link: ConfiguredHost) -> Iterator[str]:
    """The queues after the repeats are those before the repeats."""
    before = [_rounded(impairment.amounts) for impairment in link.link if not impairment.policer]
    after = [
        _rounded(read_back(queue.kind, queue.options))
        for queue in link.qdisc_after
        if queue.kind in QUEUES and not drops_at_once(queue.kind, queue.options)
    ]
    if before and not after:
        yield f"{host}: the impairment was gone when the repeats ended"
    elif sorted(before) != sorted(after):
        amounts = "; ".join(_words(dict(queue)) or "nothing" for queue in after)
        yield f"{host}: the impairment was another one when the repeats ended: {amounts}"


def _requested(link: Link) -> dict[Scope, Amounts]:
    """Return the amounts of each queue and policer of a link."""
    plain = link.model_dump()
    requested: dict[Scope, Amounts] = {}
    for side in sides(link.direction):
        if any(queued(plain).values()):
            requested[side, link.peer, False] = queued(plain)
        if link.policer and link.rate_mbit:
            nothing = dict.fromkeys(queued(plain), 0.0)
            requested[side, link.peer, True] = nothing | {"rate_mbit": link.rate_mbit}
    return requested


def _scope(impairment: ConfiguredImpairment) -> Scope:
    return impairment.direction, impairment.peer, impairment.policer


def _rounded(amounts: Amounts) -> list[tuple[str, float]]:
    return [(key, round(value, 3)) for key, value in amounts.items()]


def _near(requested: float, configured: float) -> bool:
    tolerance = max(RELATIVE * requested, ABSOLUTE if requested else 0)
    return abs(configured - requested) <= tolerance


def _place(scope: Scope) -> str:
    direction, peer, policer = scope
    to = f" {'to' if direction == 'egress' else 'from'} {peer}" if peer else ""
    return f"{direction}{to}{', policer' if policer else ''}"


def _words(amounts: Amounts) -> str:
    return ", ".join(
        f"{impairment.key} {amounts[impairment.key]:g} {impairment.unit.sign}"
        for impairment in IMPAIRMENTS
        if amounts[impairment.key]
    )
