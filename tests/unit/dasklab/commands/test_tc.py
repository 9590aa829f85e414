"""``dasklab tc`` sends what the guest program takes, shows what it answers, and undoes it."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner, Result
from dasklab.cli import main
from dasklab.console.quantity import TIMES, WORDS, Quantity, amount_of
from dasklab.model.settings.impairments import IMPAIRMENTS, UNITS, Impairment, Unit

from tests.unit.dasklab.commands.fake_ssh import FakeSsh, host

__all__ = ["host"]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["tc", *words])


def test_amounts_reach_the_host_and_can_be_undone(host: FakeSsh) -> None:
    applied = run("worker-1", "--delay", "10ms", "--rate", "0.05gbit", "--loss", "1%", "--for", "5min")
    assert applied.exit_code == 0, applied.output
    assert applied.stdout == (
        "10 ms of delay, 1 % of loss, 50 Mbit/s of rate limit on worker-1's link, for another 5 min."
        " To clear it: dasklab tc worker-1 reset\n"
    )
    assert "root@192.0.2.13" in host.asked
    assert run("worker-1").stdout == applied.stdout
    assert json.loads(run("worker-1", "--json").stdout)["expires_in_s"] == 300
    assert run("worker-1", "reset").stdout == run("worker-1").stdout == "worker-1: no impairment on eth1.\n"
    assert [name for name, _ in host.steps] == [
        *("link.apply", "link.show", "link.show", "link.clear", "link.show"),
    ]


REFUSED = {
    "unit": (("worker-1", "--delay", "10mbit"), "'10mbit' is not an amount such as 10ms; units: us, ms, s"),
    "range": (("worker-1", "--loss", "200%"), "'200%' is out of range: at most 100 %"),
    "zero": (("worker-1", "--delay", "0"), "to clear the link: dasklab tc worker-1 reset"),
    "both": (("worker-1", "reset", "--delay", "1"), "`reset` clears the link and takes no amounts"),
    "host": (("worker-9", "--delay", "1"), "no host 'worker-9' in inventory"),
    "word": (("worker-1", "rest"), "'rest' is not 'reset'"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_named_before_anything_is_sent(
    host: FakeSsh, words: tuple[str, ...], message: str
) -> None:
    result = run(*words)
    assert result.exit_code in (1, 2) and message in result.output, result.output
    assert not (host.folder / "asked").exists()


def test_a_host_s_own_refusal_is_one_line(host: FakeSsh) -> None:
    (host.folder / "refuse").write_text("eth1 has a qdisc htb 1: that the lab did not create")
    result = run("worker-1", "--delay", "10")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == (
        "dasklab: worker-1: eth1 has a qdisc htb 1: that the lab did not create"
    )


def test_kernel_without_netem_is_one_line(host: FakeSsh) -> None:
    text = "unsupported: this kernel has no netem; use virtual machines"
    host.program("dasklab-guest", f"#!/bin/sh\necho '{text}' >&2; exit 3\n")
    result = run("worker-1", "--delay", "50ms")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == (
        "dasklab: worker-1: this kernel has no netem; use virtual machines"
    )


@pytest.mark.parametrize(
    ("status", "message"), [(255, "does not answer: gone"), (127, "to install it: dasklab up")]
)
def test_a_host_that_cannot_answer_has_a_next_step(host: FakeSsh, status: int, message: str) -> None:
    host.program("ssh", f"#!/bin/sh\necho gone >&2\nexit {status}\n")
    result = run("worker-1")
    assert (result.exit_code, message in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("text", "amount"), [("10", 10), ("10ms", 10), ("1.5s", 1500), ("250us", 0.25), (" 2 MS ", 2)]
)
def test_amounts_have_units(text: str, amount: float) -> None:
    assert amount_of(IMPAIRMENTS[0]).convert(text, None, None) == pytest.approx(amount)


def test_every_unit_of_the_registry_has_words() -> None:
    assert {row.key.rpartition("_")[2] for row in IMPAIRMENTS} <= set(WORDS)
    with pytest.raises(click.BadParameter, match="at least 1 s"):
        Quantity(TIMES, "10min", least=1).convert("0", None, None)


def test_an_impairment_may_have_a_unit_without_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UNITS, "frames", Unit("frames", "", 1, 1, 1000))
    queue = amount_of(Impairment("queue_frames", "queue", "limit", ("limit", "limit")))
    assert (queue.convert("20", None, None), queue.convert("20frames", None, None)) == (20, 20)


def test_reset_also_clears_what_others_left_and_says_so(host: FakeSsh) -> None:
    answer = {"interface": "eth1", "configured": [], "expires_in_s": None, "differences": []}
    mended = {**answer, "mended": ["removed qdisc tbf 1: from eth1", "set eth1 up"]}
    host.program("dasklab-guest", f"#!/bin/sh\ncase $3 in *true*) echo '{json.dumps(mended)}' ;; esac\n")
    assert run("worker-1", "reset").stdout == (
        "worker-1: no impairment on eth1; removed qdisc tbf 1: from eth1; set eth1 up.\n"
    )
    foreign = {**answer, "differences": ["eth1 has a qdisc tbf 1: that the lab did not create"]}
    host.program("dasklab-guest", f"#!/bin/sh\necho '{json.dumps(foreign)}'\n")
    assert run("worker-1").stdout == (
        "worker-1: no impairment on eth1; eth1 has a qdisc tbf 1: that the lab did not create."
        " To clear it: dasklab tc worker-1 reset\n"
    )
