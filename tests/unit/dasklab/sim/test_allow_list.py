"""The simulation models what the registries say that it models, and refuses everything else by name."""

from __future__ import annotations

import pytest
from dasklab.errors import LabError
from dasklab.model.settings.impairments import IMPAIRMENTS, Impairment
from dasklab.model.settings.link import Link
from dasklab.model.settings.simulated import MODELLED_FAULTS, MODELLED_LINK
from dasklab.sim import build
from dasklab.sim.faults import STATES
from dasklab.sim.kernel import Kernel
from dasklab.sim.network import Port

from tests.unit.dasklab.sim.samples import scenario

AMOUNT = 5.0  # of each impairment, in its unit
OTHER_SETTINGS = {"direction": "ingress", "peer": "worker-1", "policer": True}


def port(**link: object) -> Port:
    """Return worker-2's port with these impairments."""
    network = build.network(scenario(links={"worker-2": link}), Kernel())
    return network.ports["worker-2"]


def impaired(impairment: Impairment) -> dict[str, object]:
    """Return a link with this impairment, and with the one that it needs."""
    keys = [impairment.key, impairment.needs] if impairment.needs else [impairment.key]
    return dict.fromkeys(keys, AMOUNT)


@pytest.mark.parametrize("impairment", [row for row in IMPAIRMENTS if row.simulated], ids=lambda row: row.key)
def test_impairment_that_counts_as_simulated_changes_the_port(impairment: Impairment) -> None:
    without = {key: value for key, value in impaired(impairment).items() if key != impairment.key}
    assert vars_of(port(**impaired(impairment))) != vars_of(port(**without))


@pytest.mark.parametrize(
    "impairment", [row for row in IMPAIRMENTS if not row.simulated], ids=lambda row: row.key
)
def test_impairment_that_is_not_simulated_is_refused_by_name(impairment: Impairment) -> None:
    with pytest.raises(LabError, match=rf"links\.worker-2\.{impairment.key}: the simulation does not model"):
        port(**impaired(impairment))


def test_every_setting_of_a_link_is_modelled_or_refused_by_name() -> None:
    keys = {row.key for row in IMPAIRMENTS}
    assert {*keys, *OTHER_SETTINGS} == set(Link.model_fields), "add the new setting to this test"
    for name, value in OTHER_SETTINGS.items():
        if name not in MODELLED_LINK:
            with pytest.raises(LabError, match=rf"links\.worker-2\.{name}: the simulation does not model"):
                port(rate_mbit=AMOUNT, **{name: value})


def test_every_modelled_fault_can_be_injected() -> None:
    assert set(STATES) == MODELLED_FAULTS


def vars_of(port: Port) -> list[object]:
    """Return the fields of a port, with the rates in place of its pipes."""
    fields = vars(port) | {"up": port.up.rate, "down": port.down.rate}
    return sorted(fields.items(), key=lambda item: item[0])
