"""A level of a factor in words: ``50 Mbit/s on every link`` for ``all``, if its settings are those of links.

A level with other settings keeps the name that the experiment's author chose: ``fault kill``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dasklab.model.experiments.experiment import Factor
from dasklab.model.forms.number_format import format_quantity
from dasklab.model.settings.impairments import IMPAIRMENTS, UNITS
from dasklab.model.settings.nic import TITLES
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.terminal import enumerated

PLACES = {
    "cluster": "every link",
    "client": "the client's link",
    "scheduler": "the scheduler's link",
    "workers": "the workers' links",
}
DESCRIBED = {"links", "nics", "guests"}  # the settings that have words; a level with others keeps its name
Words = Mapping[str, Mapping[str, str]]  # factor -> level -> words
Settings = Iterable[tuple[str, Mapping[str, Any]]]  # host and what it sets


def level_words(factors: Mapping[str, Any]) -> Words:
    """Return words for each level whose settings can be described.

    Args:
        factors: the experiment's, as stored with the run.
    """
    checked = {name: Factor.model_validate(factor) for name, factor in factors.items()}
    return {name: _factor_words(factor.overrides()) for name, factor in checked.items()}


def _factor_words(levels: Mapping[Any, Mapping[str, Any]]) -> dict[str, str]:
    """Describe the levels of a factor. If each sets the model of every NIC, the place says nothing."""
    words = {str(level): words for level, settings in levels.items() if (words := _of(settings))}
    if all(_is_model_of_every_nic(settings) for settings in levels.values()):
        return {level: text.removesuffix(f" on {PLACES['cluster']}") for level, text in words.items()}
    return words


def _is_model_of_every_nic(settings: Mapping[str, Any]) -> bool:
    nics = settings.get("nics", {})
    return list(nics) == ["cluster"] and bool(nics["cluster"].get("model")) and not settings.get("links")


def cell_label(answer: Answer, cell: Cell, words: Words) -> str:
    """Return what sets a cell apart: ``200 ms of delay on worker-1's link and bridge flooding``.

    What it computes, and by which engine, is named if the experiment varies it: ``dask 2025.4.1, arrays``,
    ``baseline (dask 2026.8.0), arrays``.
    """
    base = answer.cells[0].factors
    parts = [
        words.get(factor, {}).get(str(level)) or _by_name(factor, level)
        for factor, level in cell.factors.items()
        if level != base[factor] and factor not in answer.kinds
    ]
    kinds = [level_name(factor, cell.factors[factor]) for factor in answer.kinds]
    return ", ".join([" and ".join(parts) or _baseline(answer, words), *kinds])


def _baseline(answer: Answer, words: Words) -> str:
    """Return the name of a baseline, with the levels whose name says more than that nothing was changed."""
    names = [
        words[factor].get(str(level), "") if words.get(factor) else _by_name(factor, level)
        for factor, level in answer.cells[0].factors.items()
        if factor not in answer.kinds and factor.rpartition("_")[2] not in UNITS
    ]
    text = ", ".join(name for name in names if name and not name.startswith("no "))
    return f"baseline ({text})" if text else "baseline"


def level_name(factor: str, level: object) -> str:
    """Return a level with its unit: ``200 ms``, ``5 %``, ``no cap``, ``E1000``."""
    suffix = factor.rpartition("_")[2]
    if suffix == "mbit" and not level:
        return "no cap"
    return f"{level} {UNITS[suffix].sign}" if suffix in UNITS else str(level)


def _by_name(factor: str, level: object) -> str:
    name, _, suffix = factor.rpartition("_")
    text = level_name(factor, level)
    has_unit = suffix in UNITS and text != "no cap"
    return f"{text} of {name}" if has_unit else f"{factor} {text}"


def _of(settings: Mapping[str, Any]) -> str:
    """Describe the settings of a level; nothing if there are none, or others than those of links.

    A kind of guest needs no words where the model of its NIC is named: each model belongs to one kind.
    """
    links, nics = settings.get("links", {}), settings.get("nics", {})
    with_model = {host for host, nic in nics.items() if nic.get("model")}
    if not settings or set(settings) - DESCRIBED or set(settings.get("guests", {})) - with_model:
        return ""
    return " and ".join(filter(None, [describe_links(links.items()), describe_nics(nics.items())]))


def describe_links(links: Settings) -> str:
    """Return impairments in words: ``50 Mbit/s of rate limit on worker-1's link``."""
    return _join(_links(links))


def describe_link(link: Mapping[str, Any]) -> str:
    """Return a link's impairments in words: ``20 ms of delay, 50 Mbit/s of rate limit``."""
    return ", ".join(_impairments(link))


def describe_nics(nics: Settings) -> str:
    """Return models and caps of NICs in words; nothing about a NIC that sets neither."""
    return _join((host, amounts) for host, amounts in _nics(nics) if amounts)


def _join(amounts_of: Iterable[tuple[str, list[str]]]) -> str:
    """Join amounts with the links that have them; links that have the same ones are named together."""
    hosts_of: dict[str, list[str]] = {}
    for host, amounts in amounts_of:
        hosts_of.setdefault(", ".join(amounts), []).append(host)
    return " and ".join(f"{amounts} on {_links_of(hosts)}" for amounts, hosts in hosts_of.items())


def _links_of(hosts: Sequence[str]) -> str:
    """Return ``every link``, ``worker-1's link`` or ``the links of client, worker-1 and worker-2``."""
    if len(hosts) > 1:
        return f"the links of {enumerated(hosts)}"
    return PLACES.get(hosts[0]) or f"{hosts[0]}'s link"


def _links(links: Settings) -> Iterator[tuple[str, list[str]]]:
    for host, link in links:
        yield host, _impairments(link)


def _impairments(link: Mapping[str, Any]) -> list[str]:
    amounts = [
        f"{_amount(link[row.key], row.unit.sign)} of {row.title}" for row in IMPAIRMENTS if link.get(row.key)
    ] or ["no impairment"]
    amounts += ["policed"] if link.get("policer") else []
    amounts += [f"{link['direction']} only"] if link.get("direction") in ("egress", "ingress") else []
    return amounts + ([f"towards {link['peer']} only"] if link.get("peer") else [])


def _nics(nics: Settings) -> Iterator[tuple[str, list[str]]]:
    for host, nic in nics:
        model = TITLES[nic["model"]] if nic.get("model") else ""
        if nic.get("rate_mbit"):
            yield host, [" at ".join(filter(None, [model, _amount(nic["rate_mbit"], "Mbit/s")]))]
        else:
            yield host, [*filter(None, [model]), *(["no cap"] if "rate_mbit" in nic else [])]


def _amount(value: Any, sign: str) -> str:
    """Return a setting with its unit, with the digits that its author wrote: ``50 Mbit/s``, ``1 Gbit/s``."""
    return format_quantity(float(value), sign, lambda number: f"{number:,g}")
