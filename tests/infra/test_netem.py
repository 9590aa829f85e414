"""Role netem: delay, jitter, loss, rate caps and other impairments of a link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.infra.conftest import GUEST

testinfra_hosts = ["ansible://lab"]
IMPAIRING_QDISCS = {"netem", "prio", "clsact", "ingress", "tbf"}


def show(host: Any) -> dict[str, Any]:
    return dict(json.loads(host.check_output(f"{GUEST} link show")))


def apply(host: Any, is_container: bool, **link: object) -> dict[str, Any]:
    """Impair the link for at most a minute. Skip where a container's kernel, which is the node's, cannot."""
    answer = host.run(f"{GUEST} link apply %s", json.dumps({"links": [link], "ttl_s": 60}))
    message = f"{answer.stdout}{answer.stderr}".strip()
    if is_container and message.startswith("unsupported: "):
        pytest.skip(f"this node's kernel: {message}")
    assert answer.rc == 0, message
    return dict(json.loads(answer.stdout))


@pytest.fixture(autouse=True)
def _clear_link(host: Any) -> Iterator[None]:
    yield
    host.check_output(f"{GUEST} link clear")


def test_iproute2_is_installed(host: Any) -> None:
    assert host.package("iproute2").is_installed


def test_link_has_no_impairment_at_rest(host: Any) -> None:
    rest = show(host)
    assert rest["requested"] == []
    assert not {qdisc["kind"] for qdisc in rest["qdiscs"]} & IMPAIRING_QDISCS


def test_link_under_test_is_impaired_until_it_is_cleared(host: Any, is_container: bool) -> None:
    [link] = apply(host, is_container, delay_ms=5, loss_pct=1)["configured"]
    assert (link["delay_ms"], link["loss_pct"], link["direction"]) == (5, 1, "egress")
    host.check_output(f"{GUEST} link clear")
    assert show(host)["requested"] == []
    assert not {qdisc["kind"] for qdisc in show(host)["qdiscs"]} & IMPAIRING_QDISCS


def test_host_itself_clears_the_link_in_time(host: Any, is_container: bool) -> None:
    answer = apply(host, is_container, rate_mbit=100)
    assert 0 < answer["expires_in_s"] <= 60
    assert "dasklab" in host.check_output("systemctl list-timers --all --no-legend 'dask*'")


def test_rate_is_limited_in_both_directions(host: Any, is_container: bool) -> None:
    shaped = apply(host, is_container, rate_mbit=100, direction="both")["configured"]
    assert [(link["by"], link["policer"], link["rate_mbit"]) for link in shaped] == [("tbf", False, 100)] * 2


def test_rate_is_limited_by_a_policer(host: Any, is_container: bool) -> None:
    """If the node's kernel has no policers, its containers use a token bucket without a queue."""
    [policed] = apply(host, is_container, rate_mbit=100, policer=True)["configured"]
    assert policed["by"] in ({"police", "tbf"} if is_container else {"police"})
    assert (policed["policer"], policed["rate_mbit"]) == (True, 100)
