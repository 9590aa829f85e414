"""The card: sensitivities, their intervals and the knee, on simulations whose law is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from dasklab.commands import sensitivity as command
from dasklab.model.files import Outcome, SimulatedRun, Timings
from dasklab.model.trial import Trial
from dasklab.predict import farm, pictures, sensitivity
from dasklab.predict.validation import Validated
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import store
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.predict.test_whatif import CALIBRATION, PAYLOAD, TRIAL

NOISE = {0: 0.99, 1: 1.01, 2: 1.0}
Law = Callable[[Scenario], float]


def law(asked: Scenario) -> float:
    """A power of everything: what the sensitivities must be."""
    loss = asked.links["worker-1"].loss_pct if "worker-1" in asked.links else 0.0
    lossy = 1.25 if loss > 0.05 else 1.0
    scheduler = asked.costs["scheduler"].op_s ** 0.2
    tasks = sum(asked.tasks["add"][0][:2]) ** 0.5
    return float(lossy * scheduler * tasks * asked.rates_mbit["worker-1"] ** -0.3 * asked.workers**-0.4)


def told(monkeypatch: pytest.MonkeyPatch, seconds: Law, measured: sensitivity.Measured) -> sensitivity.Card:
    """The card of a trial of 200 Mbit/s simulated by a law, give or take the seed's 1 %."""

    def simulate_all(scenarios: Iterable[Scenario], told: object) -> list[Outcome]:
        return [
            Outcome(
                seed=asked.seed,
                runs=(
                    SimulatedRun(warmup=True, duration_s=99, transfer_bytes=0),
                    SimulatedRun(
                        warmup=False, duration_s=seconds(asked) * NOISE[asked.seed], transfer_bytes=0
                    ),
                ),
                digest="",
                messages=0,
                ops={},
                unknown=(),
                cpu_s=0,
            )
            for asked in scenarios
        ]

    monkeypatch.setattr(farm, "simulate_all", simulate_all)
    return sensitivity.card(TRIAL, [CALIBRATION], range(3), measured)


def test_sensitivities_are_those_of_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {line.name: line for line in told(monkeypatch, law, {}).lines}
    gains = {name: line.gain_pct.value for name, line in lines.items()}
    assert gains["rate of all links"] == pytest.approx(0.3)
    assert gains["scheduler's CPU"] == pytest.approx(0.2)
    assert gains["workers"] == pytest.approx(0.4)
    assert gains["round trip"] == pytest.approx(0)
    # of 2 s a task is 0.5 on a core and 0.5 waiting for it: half as fast 3 s, twice 1.5 s
    assert gains["workers' CPU"] == pytest.approx(0.5 * 0.5)  # sqrt(2) between half and double
    assert gains["0.1 % more loss on all links"] == pytest.approx(-25)
    assert not lines["0.1 % more loss on all links"].relative
    # calm: no waiting for a core: 1.5 of 2 s, and the scheduler's half
    assert gains["a core whenever one is wanted"] == pytest.approx(100 * (1 - 0.75**0.5 * 0.5**0.2))
    assert all(line.simulated for line in lines.values())


def test_every_change_is_simulated_once_with_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []

    def note(one: Scenario) -> float:
        asked.append((one.seed, one.model_dump_json(exclude={"seed"})))
        return 1.0

    told(monkeypatch, note, {})
    assert len(asked) == len(set(asked)) == 3 * len(sensitivity.changes(TRIAL, [CALIBRATION]))


def test_the_interval_is_students() -> None:
    found = sensitivity.spread([1.0, 2.0, 3.0])  # t of two degrees of freedom is 4.303
    assert (found.value, found.low, found.high) == pytest.approx(
        (2, 2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), 1e-4
    )
    assert str(sensitivity.spread([5.0]).low) == "nan"


def test_what_simulations_were_missed_by_is_in_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Validated, "missed", 0.0)
    sure = told(monkeypatch, law, {})
    monkeypatch.setattr(Validated, "missed", 0.25)
    found = told(monkeypatch, law, {})
    assert found.seconds.low == pytest.approx(sure.seconds.low / 1.25)
    assert found.seconds.high == pytest.approx(sure.seconds.high * 1.25)
    before, after = ({line.name: line.gain_pct for line in one.lines} for one in (sure, found))
    rate, loss = "rate of all links", "0.1 % more loss on all links"
    # half and double are a factor of 4 apart: if they are off by 1.25, one to the other, the slope is by this
    off = 0.16096  # log 1.25 / log 4
    assert after[rate].low == pytest.approx(before[rate].low - off, abs=1e-4)
    assert after[rate].high == pytest.approx(before[rate].high + off, abs=1e-4)
    # 1.25 times as long as without loss: 1 to 1.5625 times
    assert (after[loss].low, after[loss].value, after[loss].high) == pytest.approx((-56.25, -25, 0))


def test_the_knee_is_where_faster_links_bring_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def bound(asked: Scenario) -> float:
        return max(2.0, 800 / (asked.rates_mbit["worker-1"] / PAYLOAD))

    found = told(monkeypatch, bound, {})
    assert found.now_mbit == pytest.approx(200)
    assert list(found.rates) == pytest.approx([50, 100, 200, 400, 800, 1600, 3200])
    assert found.knee_mbit == pytest.approx(400)
    assert command._knee(found) == (
        "Faster than 400 Mbit/s brings nothing: less than 5% up to 3,200 Mbit/s (simulated)."
    )
    slow = told(monkeypatch, lambda asked: 800 / asked.rates_mbit["worker-1"], {})
    assert slow.knee_mbit is None and "bring something up to" in command._knee(slow)


def test_what_was_measured_stands_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(
        monkeypatch,
        law,
        {
            sensitivity.RATE: {100.0: [(1, 4.0), (2, 4.0)], 400.0: [(1, 2.0), (2, 2.0)]},
            sensitivity.WORKERS: {2: [(1, 3.0)], 4: [(1, 3.0)]},
        },
    )
    line, workers = found.lines[-2:]
    assert (workers.name, workers.now, round(workers.gain_pct.value, 9)) == ("workers", "2 to 4", 0)
    assert (line.name, line.now, line.simulated) == ("rate of all links", "100 to 400 Mbit/s", False)
    assert line.gain_pct.value == pytest.approx(0.5)
    assert [point.value for point in found.measured.values()] == [4, 2]


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Interval(0.3, 0.2, 0.4), "0.300 (0.200 to 0.400) % less"),
        (Interval(-25, -30, -20), "25.0 (20.0 to 30.0) % more"),
        (Interval(0.1, -0.1, 0.3), "no difference shown: 0.100 (-0.100 to 0.300) % less"),
    ],
)
def test_a_line_says_less_more_or_nothing(gain: Interval, words: str) -> None:
    line = sensitivity.Line("x", "", True, gain)
    assert command._words(line) == words
    assert command._words(sensitivity.Line("x", "", True, gain, simulated=False)) == f"{words}, measured"


def test_trials_that_differ_in_one_thing_alone_were_measured(tmp_path: Path) -> None:
    def trial(name: str, seconds: float, rate: float, **more: object) -> None:
        nics = {host: {"rate_mbit": rate} for host in ("scheduler", "worker-1", "worker-2")}
        found = Trial.model_validate(TRIAL.model_dump() | {"trial": name, "nics": nics} | more)
        sample = {"run": 0, "warmup": False, "start": 0, "stop": 1, "duration_s": seconds, "ok": True}
        cluster = {"workers": 2, "threads": 2, "addresses": {}}
        timings = {"workload": "w", "params": {}, "tasks": None, "samples": [sample], "cluster": cluster}
        (tmp_path / name).mkdir()
        store.write(tmp_path / name, found)
        store.write(tmp_path / name, Timings.model_validate(timings | {"versions": {}}))
        result = {"schema": 3, "experiment": "e", "trial": name, "cell": "c", "status": "ok", "reasons": []}
        spent = {"wall_s": 1, "measuring_s": 1}
        (tmp_path / name / "result.json").write_text(json.dumps(result | spent))
        attempt = {"schema": 3, "started": 0, "exit_status": 0, "error": None, "files": ["timings.json"]}
        (tmp_path / name / "attempt.json").write_text(json.dumps(attempt | spent))

    trial("a", 4.0, 100)
    trial("b", 2.0, 300)
    trial("c", 3.0, 100, null=True)
    trial("free", 1.0, 0)
    trial("more", 1.5, 100, workers=3)
    trial("flooded", 9.0, 100, bridge="flooding")
    begun = {"schema": 3, "name": "e", "quick": False, "seed": 1, "only": None, "git_revision": None}
    begun |= {"order": ["a", "b", "c", "free", "more", "flooded"], "setup": {"hosts": []}, "experiment": {}}
    (tmp_path / "experiment.json").write_text(json.dumps(begun))
    like_a = store.need(Trial, tmp_path / "a")
    found = sensitivity.measured(tmp_path, like_a)
    assert found == {
        sensitivity.RATE: {100.0: [(1, 4.0), (1, 3.0)], 300.0: [(1, 2.0)]},
        sensitivity.WORKERS: {2: [(1, 4.0), (1, 3.0)], 3: [(1, 1.5)]},
    }
    assert sensitivity.measured(tmp_path / "a", TRIAL) == {sensitivity.RATE: {}, sensitivity.WORKERS: {}}


def test_the_picture_says_that_it_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for measured, said in (
        ({}, "simulated"),
        ({sensitivity.RATE: {100.0: [(1, 4.0), (2, 3.0)]}}, "simulated, where not said otherwise"),
    ):
        figure = pictures.draw(told(monkeypatch, law, measured))
        assert [text.get_text() for text in figure.texts] == [said]
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert names == ["rate of all links", "round trip", "scheduler's CPU", "workers' CPU", "workers"]
