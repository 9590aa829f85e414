"""A level of a factor in words: ``50 Mbit/s on every link`` for ``all``, if its settings are those of links.

A level with other settings keeps the name that the experiment's author chose: ``fault kill``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dasklab.model.experiment import Factor
from dasklab.model.impairments import IMPAIRMENTS, UNITS
from dasklab.model.number_format import format_quantity
from dasklab.results.statistics.answer import Answer, Cell

PLACES = {
    "cluster": "every link",
    "client": "the client's link",
    "scheduler": "the scheduler's link",
    "workers": "the workers' links",
}
MODEL_NAMES = {"virtio": "VirtIO", "e1000": "E1000", "rtl8139": "RTL8139"}
DESCRIBED = {"links", "nics"}  # the settings that have words; a level with others keeps its name
Words = Mapping[str, Mapping[str, str]]  # factor -> level -> words
Settings = Iterable[tuple[str, Mapping[str, Any]]]  # host and what it sets


def level_words(factors: Mapping[str, Any]) -> Words:
    """Return words for each level whose settings can be described.

    Args:
        factors: the experiment's, as stored with the run.
    """
    checked = {name: Factor.model_validate(factor) for name, factor in factors.items()}
    return {
        name: {
            str(level): words for level, settings in factor.overrides().items() if (words := _of(settings))
        }
        for name, factor in checked.items()
    }


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
        _by_name(factor, level)
        for factor, level in answer.cells[0].factors.items()
        if not words.get(factor) and factor not in answer.kinds and factor.rpartition("_")[2] not in UNITS
    ]
    return f"baseline ({', '.join(names)})" if names else "baseline"


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
    """Describe the settings of a level; nothing if there are none, or others than those of links."""
    if not settings or set(settings) - DESCRIBED:
        return ""
    links, nics = settings.get("links", {}).items(), settings.get("nics", {}).items()
    return " and ".join(filter(None, [describe_links(links), describe_nics(nics)]))


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
    return " and ".join(
        f"{', '.join(amounts)} on {PLACES.get(host) or _link_of(host)}" for host, amounts in amounts_of
    )


def _link_of(host: str) -> str:
    return f"{host}'s link"


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
        model = str(nic.get("model") or "")
        amounts = [MODEL_NAMES.get(model, model)] if model else []
        if "rate_mbit" in nic:
            amounts.append(_amount(nic["rate_mbit"], "Mbit/s") if nic["rate_mbit"] else "no cap")
        yield host, amounts


def _amount(value: Any, sign: str) -> str:
    """Return a setting with its unit, with the digits that its author wrote: ``50 Mbit/s``, ``1 Gbit/s``."""
    return format_quantity(float(value), sign, lambda number: f"{number:,g}")
