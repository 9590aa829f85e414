"""The twin of a record: inventory, links and graph of a lab, and what this machine cannot hold."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.machines.inventory.variables import open_lab
from dasklab.model.experiments import experiment
from dasklab.paths import WORKLOADS
from dasklab.predict import record, twin
from dasklab.predict.record import RecordedWork
from dasklab.predict.record_links import ClientLink
from dasklab.predict.record_memory import HeldData
from dasklab.predict.twin import Machine, Twin
from dasklab.results.run import open_trial
from dasklab.sim.program import parse_key

RECORDS = Path(__file__).parents[3] / "data" / "records"
LARGE = Machine(cores=64, memory_bytes=64e9)


@pytest.fixture(scope="module")
def work() -> RecordedWork:
    """A record of two workers whose tasks computed on 1.6 cores; its client scattered 6 MB at 16 Mbit/s."""
    return record.read(open_trial(RECORDS / "slow_link_scatter"))


def changed(work: RecordedWork, **calibration: Any) -> RecordedWork:
    return replace(work, calibration=work.calibration.model_copy(update=calibration))


def program(source: str) -> dict[str, Any]:
    """Read the program out of a workload's source, as the workload does."""
    sys.path.insert(0, str(WORKLOADS))
    try:
        workload = importlib.import_module("_replay")
    finally:
        del sys.path[0]
    text = re.search(r'PROGRAM = """\n(.*)"""', source, re.S)
    assert text
    content = dict(workload.unpack(text[1]))
    return content | {"keys": [*map(workload.key_of, content["keys"])]}


def test_folder_is_a_lab_with_the_recorded_workers_and_an_experiment(
    work: RecordedWork, tmp_path: Path
) -> None:
    twin.write(Twin(changed(work, workers=4, threads=2), LARGE, "containers"), tmp_path / "mytwin")
    inventory = open_lab(tmp_path / "mytwin" / "inventory" / "hosts.yml")
    assert inventory.hosts() == ["client", "scheduler", *(f"worker-{number}" for number in range(1, 5))]
    assert inventory.value("client", "lab_guests") == "container"
    assert inventory.value("worker-4", "dask_worker_threads") == 2
    assert inventory.value("worker-4", "vm_cores") == 2
    assert inventory.value("worker-4", "vm_memory_mb") == 2000  # the record shows no limit
    assert inventory.value("client", "vm_memory_mb") == 1024
    name, written = experiment.load(str(tmp_path / "mytwin" / "twin.yml"))
    assert (name, written.workers, written.workload.name) == ("twin", 4, "recorded")
    assert set(written.workload_sources) == {"recorded"}


def test_machines_are_virtual_machines(work: RecordedWork, tmp_path: Path) -> None:
    twin.write(Twin(work, LARGE, "machines"), tmp_path / "mytwin")
    inventory = open_lab(tmp_path / "mytwin" / "inventory" / "hosts.yml")
    assert inventory.value("worker-1", "guest")["kind"] == "vm"


def test_graph_is_the_recorded_program_with_cpu_time_and_waiting_apart(work: RecordedWork) -> None:
    recorded, replayed = work.client_program.program, program(Twin(work, LARGE, "containers").source)
    assert replayed["keys"] == [*map(parse_key, recorded.keys)]
    assert replayed["needs"] == [list(needs) for needs in recorded.needs]
    assert [step["does"] for step in replayed["steps"]] == [step.does for step in recorded.steps]
    computed = 0.0
    for own, works in zip(recorded.works, replayed["works"], strict=True):
        for (_, seconds, nbytes), (cpu_s, wait_s, replayed_bytes) in zip(own, works, strict=True):
            assert cpu_s + wait_s <= seconds * (1 + 1e-9)  # less the recorded wait for a core
            assert replayed_bytes == nbytes
            computed += cpu_s
    assert computed > 0


def test_keys_that_are_tuples_arrive_as_tuples(work: RecordedWork) -> None:
    plan = work.client_program
    first, *others = plan.program.keys
    keys = (str((first, 0, ("a", 1.5))), *others)
    with_tuple = replace(
        work, client_program=replace(plan, program=plan.program.model_copy(update={"keys": keys}))
    )
    own = Twin(with_tuple, LARGE, "containers")
    assert program(own.source)["keys"] == [(first, 0, ("a", 1.5)), *others]


def test_tasks_wait_where_the_machine_has_fewer_cores_than_they_computed_on(work: RecordedWork) -> None:
    one_core = Twin(work, Machine(cores=1, memory_bytes=64e9), "containers")
    assert any(
        "Tasks wait instead of computing: they computed on 1.6 cores" in note for note in one_core.notes
    )
    works = [own for works in program(one_core.source)["works"] for own in works]
    assert {cpu_s for cpu_s, _, _ in works} == {0.0}
    assert not any("wait instead" in note for note in Twin(work, LARGE, "containers").notes)


def test_links_have_the_recorded_rates_and_delays(work: RecordedWork) -> None:
    far = replace(
        changed(work, uncapped_mbit=95.0, rtt_ms=20.0), client_link=ClientLink(rtt_ms=40.0, mbit=50.0)
    )
    content = Twin(far, LARGE, "containers").experiment
    assert content["nics"] == {"cluster": {"rate_mbit": 99.3}, "client": {"rate_mbit": 52.3}}  # whole frames
    assert content["links"] == {"cluster": {"delay_ms": 10.0}, "client": {"delay_ms": 30.0}}
    local = replace(far, explained=replace(far.explained, repeats=(replace(far.repeat, on_loopback=True),)))
    assert "links" not in Twin(local, LARGE, "containers").experiment


def test_fast_and_unknown_links_have_no_cap_and_it_is_said(work: RecordedWork) -> None:
    for rate, sentence in (
        (9000.0, "those of the record showed 9000 Mbit/s"),
        (0.0, "hardly any data moved"),
    ):
        uncapped = replace(changed(work, uncapped_mbit=rate), client_link=ClientLink(rtt_ms=0.1, mbit=rate))
        own = Twin(uncapped, LARGE, "containers")
        assert "nics" not in own.experiment
        assert any(sentence in note for note in own.notes)


def test_results_that_do_not_fit_are_scaled_with_the_rates(
    work: RecordedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin, "held_data", lambda *_: HeldData(20e9, 16e9, 0.0))
    own = Twin(changed(work, uncapped_mbit=1000.0), Machine(cores=4, memory_bytes=20e9), "containers")
    assert own.notes[0].startswith(
        "Sizes of results and rates of links are divided by 3: the workers held 20 GB"
    )
    assert own.experiment["nics"]["cluster"]["rate_mbit"] == pytest.approx(1000 / 3 * 1514 / 1448, abs=0.1)
    recorded = [nbytes for own in work.client_program.program.works for _, _, nbytes in own]
    scaled = [nbytes for works in program(own.source)["works"] for _, _, nbytes in works]
    assert scaled == [nbytes // 3 for nbytes in recorded]
    with pytest.raises(LabError, match="20 GB of results do not fit into this machine, and cannot be scaled"):
        Twin(changed(work, uncapped_mbit=0.0), Machine(cores=4, memory_bytes=20e9), "containers")


@pytest.mark.parametrize(
    ("calibration", "kind", "message"),
    [
        ({"workers": 100}, "containers", "it has 100 workers, and a lab at most 99"),
        (
            {"workers": 60},
            "containers",
            r"60 workers as containers need 15\.5 GB, and this machine can give 8\.0",
        ),
        (
            {"workers": 8},
            "machines",
            r"8 workers as machines need 10\.0 GB, and this machine can give 8\.0 GB",
        ),
    ],
)
def test_what_the_machine_cannot_carry_is_refused(
    work: RecordedWork, calibration: dict[str, Any], kind: str, message: str
) -> None:
    with pytest.raises(LabError, match=message) as refused:
        Twin(changed(work, **calibration), Machine(cores=2, memory_bytes=10e9), kind)
    assert refused.value.hint == "simulate it instead: dasklab whatif RECORD"


def test_shuffles_and_unequal_workers_are_refused(work: RecordedWork) -> None:
    plan = work.client_program
    keys = ("shuffle-barrier-1", *plan.program.keys[1:])
    shuffled = replace(
        work, client_program=replace(plan, program=plan.program.model_copy(update={"keys": keys}))
    )
    with pytest.raises(LabError, match="peer-to-peer shuffles cannot be replayed"):
        Twin(shuffled, LARGE, "containers")
    unequal = replace(work.repeat, threads={"worker-1": 1, "worker-2": 4})
    with pytest.raises(LabError, match=r"different numbers of threads \(1, 4\)"):
        Twin(replace(work, explained=replace(work.explained, repeats=(unequal,))), LARGE, "containers")


def test_command_writes_a_folder_or_compares_a_run(tmp_path: Path) -> None:
    path = str(RECORDS / "before_and_after")
    printed = CliRunner().invoke(main, ["twin", path, "-o", str(tmp_path / "mytwin")], catch_exceptions=False)
    assert "2 workers with 1 thread each, 20 tasks; the record took 7.04 s." in " ".join(
        printed.output.split()
    )
    assert (tmp_path / "mytwin" / "recorded.py").exists()
    again = CliRunner().invoke(main, ["twin", path, "-o", str(tmp_path / "mytwin")])
    assert "is not empty" in again.output
    neither = CliRunner().invoke(main, ["twin", path])
    assert neither.exit_code == 2 and "-o FOLDER" in neither.output
