"""The registries of impairments, metrics and NIC models: every consumer knows every row, or refuses it."""

from __future__ import annotations

from typing import get_args

import pytest
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.forms.number_format import format_count, format_number
from dasklab.model.settings import impairments
from dasklab.model.settings.dask_settings import defaults
from dasklab.model.settings.impairments import AMOUNTS, IMPAIRMENTS, UNITS, Impairment
from dasklab.model.settings.link import Link
from dasklab.model.settings.metric import METRICS
from dasklab.model.settings.nic import DEFAULT_MODEL, DRIVERS, MODELS, NicModel
from dasklab.model.settings.simulated import (
    CHECKED,
    MODELLED,
    MODELLED_DASK,
    WITHOUT_EFFECT_ON_LENGTH,
    unmodelled,
    unmodelled_link,
)
from dasklab.model.settings.trial_settings import Settings, SharedSettings
from dasklab.model.settings.variants import ResolvedScheduler
from pydantic import ValidationError

EXAMPLES = {"ms": 20.0, "pct": 5.0, "mbit": 100.0}
rows = pytest.mark.parametrize("impairment", IMPAIRMENTS, ids=lambda row: row.key)


def link_with(impairment: Impairment) -> Link:
    """Return a link with this impairment, and with the one that it needs."""
    amounts = {key: EXAMPLES[key.rpartition("_")[2]] for key in (impairment.key, impairment.needs) if key}
    return Link.model_validate(amounts)


def test_link_has_a_field_for_each_impairment() -> None:
    others = {"direction", "peer", "policer"}
    assert set(Link.model_fields) == {*AMOUNTS, *others}


@rows
def test_amount_has_the_range_of_its_unit(impairment: Impairment) -> None:
    with pytest.raises(ValidationError):
        Link.model_validate({impairment.key: -1})
    if impairment.unit.most is not None:
        with pytest.raises(ValidationError):
            Link.model_validate({impairment.key: impairment.unit.most * 1.01})


@rows
def test_impairment_alone_makes_a_link_unclear(impairment: Impairment) -> None:
    assert Link().clear and not link_with(impairment).clear


@rows
def test_impairment_needs_another_one_if_its_row_says_so(impairment: Impairment) -> None:
    if impairment.needs:
        amount = EXAMPLES[impairment.key.rpartition("_")[2]]
        with pytest.raises(ValidationError, match=f"{impairment.key} needs a {impairment.needs} above 0"):
            Link.model_validate({impairment.key: amount})


@rows
def test_tc_is_asked_for_what_it_reports(impairment: Impairment) -> None:
    """The words for tc hold the amount, and an answer of tc is read back as the amount."""
    amounts = dict.fromkeys(AMOUNTS, 0.0) | {
        key: EXAMPLES[key.rpartition("_")[2]] for key in (impairment.key, impairment.needs) if key
    }
    words = impairments.tc_words(amounts, frames=1000, mtu=1500)
    assert not impairment.word or impairment.word in words
    options: dict[str, dict[str, float]] = {}
    for row in IMPAIRMENTS:
        section, name = row.read_back
        options.setdefault(section, {})[name] = amounts[row.key] / row.unit.from_tc
    assert impairments.read_back("netem", options) == pytest.approx(amounts)


def test_netem_that_reports_nothing_has_no_amounts() -> None:
    assert impairments.read_back("netem", {}) == dict.fromkeys(AMOUNTS, 0)


@rows
def test_simulation_refuses_what_it_does_not_model(impairment: Impairment) -> None:
    reasons = list(unmodelled_link("worker-1", link_with(impairment)))
    needed = {row.key: row for row in IMPAIRMENTS}
    expected = [
        f"links.worker-1.{key}: the simulation does not model it"
        for key in AMOUNTS
        if key in (impairment.key, impairment.needs) and not needed[key].simulated
    ]
    assert reasons == expected


@pytest.mark.parametrize("other", [{"peer": "worker-2"}, {"policer": True}])
def test_simulation_refuses_other_properties_of_a_link(other: dict[str, object]) -> None:
    [reason] = unmodelled_link("worker-1", Link.model_validate({"rate_mbit": 100, **other}))
    assert reason == f"links.worker-1.{next(iter(other))}: the simulation does not model it"


def test_new_impairment_is_refused_by_the_simulation_until_its_row_says_otherwise() -> None:
    assert not Impairment("corrupt_pct", "corruption", "corrupt", ("corrupt", "corrupt")).simulated


def test_simulation_knows_of_every_setting_whether_it_models_it() -> None:
    """A setting that is in no list is refused; these lists name settings that exist."""
    assert set(SharedSettings.model_fields) >= MODELLED | CHECKED | WITHOUT_EFFECT_ON_LENGTH
    assert list(unmodelled(Settings(), ResolvedScheduler())) == []


def test_simulation_models_settings_that_dask_has() -> None:
    for modelled in MODELLED_DASK:
        assert any(f"{name}.".startswith(f"{modelled}.") for name in defaults()), modelled


def test_simulation_refuses_other_settings_of_dask() -> None:
    requested = Settings.model_validate({"dask": {"distributed": {"comm": {"shard": "1 MiB"}}}})
    reasons = list(unmodelled(requested, ResolvedScheduler()))
    assert reasons == ["dask distributed.comm.shard: the simulation does not model it"]
    unchanged = Settings.model_validate({"dask": {"distributed": {"comm": {"shard": "64MiB"}}}})
    assert list(unmodelled(unchanged, ResolvedScheduler())) == []


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_metric_is_complete(metric: object) -> None:
    assert metric.title and metric.source and metric.worse in ("more", "less", None)
    assert metric.format in (format_number, format_count)
    assert metric.heading.startswith(metric.title[0].upper())
    unit = metric.name.rpartition("_")[2]
    if unit in UNITS:
        assert metric.unit == UNITS[unit].sign


def test_experiment_accepts_every_metric() -> None:
    document = {"title": "T", "question": "Q?", "metrics": dict.fromkeys(METRICS)}
    assert list(Experiment.model_validate(document).metrics) == list(METRICS)


def test_nic_models_have_drivers_and_belong_to_one_kind_of_guest() -> None:
    assert set(DRIVERS) == set(get_args(NicModel)) and all(DRIVERS.values())
    assert sorted(model for models in MODELS.values() for model in models) == sorted(DRIVERS)
    assert all(DEFAULT_MODEL[kind] in models for kind, models in MODELS.items())


@pytest.mark.parametrize(
    ("value", "number", "count"),
    [
        (4.1649, "4.16", "4.2"),
        (0.05234, "0.0523", "0.1"),
        (9540.0, "9,540", "9,540"),
        (191_543.0, "192,000", "191,543"),
        (0.0, "0", "0"),
        (2.5, "2.50", "2.5"),
        (3266.9, "3,270", "3,267"),
        (float("nan"), "\u2013", "\u2013"),
    ],
)
def test_numbers_are_written_for_people(value: float, number: str, count: str) -> None:
    assert (format_number(value), format_count(value)) == (number, count)
