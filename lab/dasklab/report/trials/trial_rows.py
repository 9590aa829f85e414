"""Every trial of a run as a row: which links it requested, which were configured, what probes measured.

The rows are in the order in which the trials ran. A cell's row in the other tables links to its trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Configured, ConfiguredHost, Measured, Probe
from dasklab.model.forms.number_format import UNKNOWN, format_quantity
from dasklab.model.settings.metric import METRICS
from dasklab.model.settings.nic import BYTES_PER_MBIT, DEFAULT_MODEL, NicSettings, net_from_pve
from dasklab.report.words.levels import describe_links, describe_nics
from dasklab.results.run import Trial

PLAIN = "no impairment"
FOLDER = "trials"
"""The folder of the trials' pages, in that of the report."""


@dataclass(frozen=True)
class TrialRow:
    """One trial.

    Attributes:
        number: the start of its name: block and place in it.
        reasons: why it is not ok.
        warnings: what is suspicious about it.
        page: the file of its page, from the report's folder.
    """

    trial: Trial
    anchor: str
    name: str
    number: str
    cell: str
    null: bool
    status: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    value: str
    requested: str
    configured: str
    measured: str
    page: str | None


def trial_rows(
    trials: Sequence[Trial], frame: pd.DataFrame, metric: str | None, anchor: str, has_pages: bool
) -> list[TrialRow]:
    """Return a row for each of the trials.

    Args:
        frame: the table of the run's samples.
        metric: the one whose median is shown.
        anchor: the section's; the anchors of the rows begin with it.
        has_pages: whether each trial has a page of its own.
    """
    medians = _medians(frame, metric)
    return [
        _row(trial, medians, f"{anchor}-trial-{index}", has_pages) for index, trial in enumerate(trials, 1)
    ]


def by_cell(rows: Sequence[TrialRow]) -> dict[str, list[TrialRow]]:
    """Return the trials of each cell. A null trial is compared with its cell, so it is not one of these."""
    cells: dict[str, list[TrialRow]] = {}
    for row in rows:
        if not row.null:
            cells.setdefault(row.cell, []).append(row)
    return cells


def _row(trial: Trial, medians: Mapping[str, str], anchor: str, has_pages: bool) -> TrialRow:
    requested, result = trial.requested, trial.result
    return TrialRow(
        trial=trial,
        anchor=anchor,
        name=requested.trial,
        number="-".join(requested.trial.split("-")[:2]),
        cell=requested.cell,
        null=requested.null,
        status=result.status,
        reasons=result.reasons,
        warnings=result.warnings,
        value=medians.get(requested.trial, UNKNOWN),
        requested=_requested(requested),
        configured=_configured(trial.configured) if trial.configured else "not read back",
        measured=_measured(requested.tested, trial.measured) if trial.measured else "not measured",
        page=f"{FOLDER}/{anchor}.html" if has_pages else None,
    )


def _medians(frame: pd.DataFrame, metric: str | None) -> dict[str, str]:
    if metric is None:
        return {}
    samples = frame[(frame.metric == metric) & ~frame.warmup]
    unit = METRICS[metric].unit
    return {
        str(trial): format_quantity(float(value), unit, METRICS[metric].format)
        for trial, value in samples.groupby("trial").value.median().items()
    }


def _requested(trial: RequestedTrial) -> str:
    links = describe_links(
        (host, {**link.model_dump(), **_way(link.policer, link.direction, link.peer)})
        for host, link in trial.links.items()
    )
    nics = describe_nics((host, _special(nic)) for host, nic in trial.nics.items())
    return " and ".join(filter(None, [links, nics, _bridge(trial.bridge == "flooding")])) or PLAIN


def _configured(configured: Configured) -> str:
    links = [
        (host, {**impairment.amounts, **_way(impairment.policer, impairment.direction, impairment.peer)})
        for host, settings in configured.hosts.items()
        for impairment in settings.link
    ]
    nics = [(host, _special(nic)) for host, settings in configured.hosts.items() for nic in _nic(settings)]
    flooding = configured.bridge is not None and configured.bridge.ageing_s == 0
    texts = [describe_links(links), describe_nics(nics), _bridge(flooding)]
    return " and ".join(filter(None, texts)) or PLAIN


def _way(policer: bool, direction: str, peer: str | None) -> dict[str, Any]:
    """Return a direction as a request names it: what a host sends is the default."""
    return {"policer": policer, "direction": direction if direction == "ingress" else "", "peer": peer}


def _nic(host: ConfiguredHost) -> Iterator[NicSettings]:
    """Yield the NIC that the hypervisor reports, if there is a hypervisor."""
    if host.net:
        nic = net_from_pve(host.net)
        yield NicSettings.model_validate(
            {"model": nic.model, "rate_mbit": round(nic.rate_bytes / BYTES_PER_MBIT, 3)}
        )


def _special(nic: NicSettings) -> dict[str, Any]:
    """Return what a NIC has apart from the defaults."""
    model = {} if nic.model in DEFAULT_MODEL.values() else {"model": nic.model}
    return model | ({"rate_mbit": nic.rate_mbit} if nic.rate_mbit else {})


def _bridge(flooding: bool) -> str:
    return "a flooding bridge" if flooding else ""


def _measured(tested: Sequence[str], measured: Measured) -> str:
    """Return the median round trip and throughput of the tested links, of all if the trial tests none."""

    def concerns(probe: Probe) -> bool:
        return not tested or probe.src in tested or probe.dst in tested

    rtts_ms = [sample for probe in measured.rtt if concerns(probe) for sample in probe.samples_ms]
    rates_mbit = [probe.mbit for probe in measured.throughput if concerns(probe) and probe.proto == "tcp"]
    texts = [f"RTT {format_quantity(median(rtts_ms), 'ms')}"] if rtts_ms else []
    texts += [format_quantity(median(rates_mbit), "Mbit/s")] if rates_mbit else []
    return ", ".join(texts) or UNKNOWN
