"""Was the link set as asked? Item by item, what the tools say against what the trial asks; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dasklab.model.files import Configured, ConfiguredHost, ConfiguredImpairment
from dasklab.model.impairments import IMPAIRMENTS, QUEUES, drops_at_once, queued, read_back, sides
from dasklab.model.link import Link
from dasklab.model.nic import DRIVERS, NicSettings, net_from_pve
from dasklab.model.trial import Trial

SHARE = 1e-3  # what rounding by tc and the hypervisor may make of an amount ...
LEAST = 1e-3  # ... or, for small ones, this much of its unit
Amounts = Mapping[str, float]
Scope = tuple[str, str | None, bool]  # direction, peer, policer


def differences(trial: Trial, configured: Configured) -> Iterator[str]:
    """Every item that is set otherwise than asked, in words."""
    bridge = configured.bridge
    if bridge is not None and (bridge.ageing_s == 0) != (trial.bridge == "flooding"):
        yield f"a {trial.bridge} bridge was asked, its ageing time is {bridge.ageing_s:g} s"
    for host in dict.fromkeys([*trial.nics, *trial.links, *trial.offloads]):
        if host not in configured.hosts:
            yield f"{host}: nothing was read back of its link"
    for host, found in configured.hosts.items():
        if host in trial.nics:
            yield from _card(host, trial.nics[host], found, bridge.name if bridge else None)
        yield from _offloads(host, trial.offloads.get(host, {}), found.offloads)
        link = trial.links.get(host, Link())
        yield from _impairments(host, link, found)
        yield from _lasting(host, found)


def _card(host: str, asked: NicSettings, found: ConfiguredHost, bridge: str | None) -> Iterator[str]:
    """The NIC as the hypervisor has it, and as the guest's kernel sees it."""
    if found.driver not in DRIVERS[asked.model]:
        yield f"{host}: NIC {asked.model} was asked, the guest's driver is {found.driver or 'unknown'}"
    if found.net is None:
        yield f"{host}: the hypervisor did not say what its NIC is"
        return
    card = net_from_pve(found.net)
    if card.model != asked.model:
        yield f"{host}: NIC {asked.model} was asked, the hypervisor has {card.model}"
    if not _near(asked.rate_mbit, card.rate_mbit):
        told = f"the hypervisor has {card.rate_mbit:.1f}" if card.rate_mbit else "the hypervisor has none"
        yield f"{host}: a cap of {asked.rate_mbit:g} Mbit/s was asked, {told}"
    if bridge is not None and card.bridge != bridge:
        yield f"{host}: its NIC is on bridge {card.bridge}, the lab's is {bridge}"


def _offloads(host: str, asked: Mapping[str, bool], found: Mapping[str, bool]) -> Iterator[str]:
    words = {True: "on", False: "off", None: "unknown"}
    for name, wanted in asked.items():
        if found.get(name) != wanted:
            yield f"{host}: offload {name} {words[wanted]} was asked, it is {words[found.get(name)]}"


def _impairments(host: str, link: Link, found: ConfiguredHost) -> Iterator[str]:
    """Each queue and policer that is asked is there with its amounts, and no other is."""
    asked, there = _asked(link), {_scope(each): _amounts(each) for each in found.link}
    for scope, amounts in asked.items():
        if scope not in there:
            yield f"{host}, {_where(scope)}: {_words(amounts)} was asked, the kernel has nothing there"
            continue
        for impairment in IMPAIRMENTS:
            key, unit = impairment.key, impairment.unit.sign
            if not _near(amounts[key], there[scope][key]):
                values = f"{amounts[key]:g} {unit} was asked, {there[scope][key]:g} {unit} is configured"
                yield f"{host}, {_where(scope)}: {key}: {values}"
    for scope in there.keys() - asked.keys():
        yield f"{host}, {_where(scope)}: {_words(there[scope])} is configured, nothing was asked there"


def _lasting(host: str, found: ConfiguredHost) -> Iterator[str]:
    """What was there before the runs is there after them, and nothing else."""
    before = [_rounded(_amounts(each)) for each in found.link if not each.policer]
    after = [
        _rounded(read_back(queue.kind, queue.options))
        for queue in found.qdisc_after
        if queue.kind in QUEUES and not drops_at_once(queue.kind, queue.options)
    ]
    if before and not after:
        yield f"{host}: the impairment was gone when the runs ended"
    elif sorted(before) != sorted(after):
        told = "; ".join(_words(dict(amounts)) or "nothing" for amounts in after)
        yield f"{host}: when the runs ended, another impairment was there: {told}"


def _asked(link: Link) -> dict[Scope, Amounts]:
    """What each queue and policer of a link is to do."""
    plain = link.model_dump()
    asked: dict[Scope, Amounts] = {}
    for side in sides(link.direction):
        if any(queued(plain).values()):
            asked[side, link.peer, False] = queued(plain)
        if link.policer and link.rate_mbit:
            asked[side, link.peer, True] = dict.fromkeys(queued(plain), 0.0) | {"rate_mbit": link.rate_mbit}
    return asked


def _scope(found: ConfiguredImpairment) -> Scope:
    return found.direction, found.peer, found.policer


def _amounts(found: ConfiguredImpairment) -> Amounts:
    return found.amounts


def _rounded(amounts: Amounts) -> list[tuple[str, float]]:
    return [(key, round(value, 3)) for key, value in amounts.items()]


def _near(asked: float, found: float) -> bool:
    return abs(found - asked) <= max(SHARE * asked, LEAST if asked else 0)


def _where(scope: Scope) -> str:
    direction, peer, policer = scope
    to = f" {'to' if direction == 'egress' else 'from'} {peer}" if peer else ""
    return f"{direction}{to}{', policer' if policer else ''}"


def _words(amounts: Amounts) -> str:
    return ", ".join(
        f"{impairment.key} {amounts[impairment.key]:g} {impairment.unit.sign}"
        for impairment in IMPAIRMENTS
        if amounts[impairment.key]
    )
