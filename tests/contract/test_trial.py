"""The trial's playbook, whole, on hosts that are none: what it calls, writes, refuses and leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from dasklab.paths import SHARE as ROOT

from tests.contract.dry_lab import HOSTS, TIMINGS, TRIAL, DryLab, executable


@pytest.fixture
def lab(tmp_path: Path) -> DryLab:
    return DryLab.make(tmp_path)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> DryLab:
    """A lab in which the usual trial was played."""
    lab = DryLab.make(tmp_path_factory.mktemp("tried"))
    done = lab.play("trial.yml")
    assert done.returncode == 0, done.stdout
    return lab


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the screen says of failures: the headings and their lines."""
    return [line for line in done.stdout.splitlines() if re.match(r"  FAILED|          \S", line)]


def test_a_trial_writes_what_the_hosts_said_and_resets_them(tried: DryLab) -> None:
    lab = tried
    files = {path.name for path in lab.trial.iterdir()}
    wanted = {"configured", "measured", "timings", "hosts", "capture", "trial"}
    assert files == {f"{name}.json" for name in wanted}
    [sample] = lab.written("timings.json")["samples"]
    assert (sample["duration_s"], sample["answer"]) == (0.12345678901234568, 1e-7)
    assert sorted(lab.written("configured.json")["hosts"]) == sorted(HOSTS)
    assert {lab.calls(host)[-1] for host in HOSTS} == {"all "}
    assert lab.asked() == [{"nics": TRIAL["nics"], "guests": {}, "state": "started"}]

    done = lab.play("reset.yml")
    assert done.returncode == 0, done.stdout
    assert [lab.calls(host)[-2:] for host in HOSTS] == [["all ", "all "]] * len(HOSTS)
    assert lab.asked()[1:] == [{"nics": {}, "guests": {}, "state": "started"}], (
        "the NICs are not the inventory's again"
    )


def test_the_cluster_is_started_as_the_trial_asks(tried: DryLab) -> None:
    """Each host has the settings that are for it, and the scheduler its seat; the next trial's are others."""
    lab = tried
    run = {host: lab.folder / host / "run" for host in HOSTS}
    settings = {host: yaml.safe_load((run[host] / "dask" / "trial.yaml").read_text()) for host in HOSTS}
    everywhere = {"comm": {"compression": "lz4"}}
    assert settings["worker-1"] == settings["client"] == {"distributed": everywhere}
    bin_ = lab.folder / "scheduler" / "bin"
    preloads = [f"{bin_}/dasklab_inside.py", f"{bin_}/dasklab_random.py"]
    seated = {"work-stealing": False, "preload": preloads}
    assert settings["scheduler"] == {"distributed": everywhere | {"scheduler": seated}}
    started = (run["scheduler"] / "cluster.env").read_text().splitlines()
    assert started == [
        f'DASKLAB_SEAT="{bin_}/dasklab_seat"',
        "DASKLAB_PROCESSES=2",
        "DASKLAB_THREADS=1",
        "DASKLAB_WORKER=dask",
        f"DASKLAB_DASK={lab.folder / 'scheduler' / 'dask'}",
        f"DASKLAB_PYTHON={bin_}/dasklab_forkserver.py",
    ]
    asked = next(
        line for line in (lab.folder / "client" / "words").read_text().splitlines() if "array" in line
    )
    assert "--workers 6" in asked
    assert "--settings distributed.comm.compression,distributed.scheduler.work-stealing" in asked

    seat = {"variant": None, "command": "/opt/rsds -v", "settings": {}, "preload": ""}
    lab.ask(
        {
            **TRIAL,
            "dask": {},
            "resolved_scheduler": seat,
            "layout": None,
            "worker": {"variant": "zero"},
            "capture": False,
        }
    )
    assert lab.play("trial.yml").returncode == 0
    assert yaml.safe_load((run["scheduler"] / "dask" / "trial.yaml").read_text()) == {}
    started = (run["scheduler"] / "cluster.env").read_text().splitlines()
    assert started == [
        'DASKLAB_SEAT="/opt/rsds -v"',
        "DASKLAB_PROCESSES=1",
        "DASKLAB_THREADS=0",
        "DASKLAB_WORKER=zero",
        f"DASKLAB_DASK={lab.folder / 'scheduler' / 'dask'}",
        f"DASKLAB_PYTHON={bin_}/dasklab_forkserver.py",
    ]


def test_workload_of_the_users_own_is_written_to_the_client(lab: DryLab) -> None:
    source = '"""Braces, "quotes" and $HOME stay."""\nf"{{}} {{% if %}}"\n'
    lab.ask({**TRIAL, "workload": {"name": "mywork", "params": {}, "source": source}, "capture": False})
    lab.say("client", "dasklab_forkserver.py mywork.py", json.dumps(TIMINGS))
    done = lab.play("trial.yml")
    assert done.returncode == 0, done.stdout
    assert (lab.folder / "client" / "workloads" / "mywork.py").read_text() == source
    assert not (lab.folder / "worker-1" / "workloads").exists()


def test_a_fault_is_armed_on_its_host_before_the_runs_and_what_happened_is_written(lab: DryLab) -> None:
    fault = {"host": "worker-2", "does": "kill", "at_s": 2.0, "for_s": None}
    lab.ask({**TRIAL, "faults": [fault], "capture": False})
    done = lab.play("trial.yml")
    assert done.returncode == 0, done.stdout
    assert lab.written("faults.json")["hosts"] == {
        "worker-2": {"at_s": 2.0, "lasted_s": None, "state": "failed"}
    }
    faulty = [call for call in lab.calls("worker-2") if "fault" in call]
    assert faulty == ["dasklab_fault.py arm", "dasklab_fault.py end"]
    assert not any("fault" in call for host in HOSTS if host != "worker-2" for call in lab.calls(host))
    [armed] = [
        line for line in (lab.folder / "worker-2" / "words").read_text().splitlines() if "arm " in line
    ]
    assert json.loads(armed.removeprefix("arm ").partition(" --service ")[0]) == fault
    assert armed.endswith("--service dask-worker.service --ttl 60")
    assert "--told /run/dasklab/fault-told" in (lab.folder / "client" / "words").read_text()


def test_each_process_is_looked_at_in_runs_of_their_own_and_what_was_seen_is_fetched(lab: DryLab) -> None:
    """The program is the real one; a systemd that is none leaves the file which py-spy would."""
    brought = [
        ROOT / "roles" / path for path in ("base/files/dasklab_common.py", "profile/files/dasklab_profile.py")
    ]
    for program in brought:
        for host in HOSTS:
            executable(lab.folder / host / "bin" / program.name, program.read_text())
    executable(lab.folder / "bin" / "systemctl", f'#!/bin/sh\n[ "$1" != show ] || echo {os.getpid()}\n')
    leave = "for word; do case $word in --output=*) echo '{}' >${word#--output=};; esac; done"
    executable(lab.folder / "bin" / "systemd-run", f"#!/bin/sh\n{leave}\n")
    lab.ask({**TRIAL, "py_spy": True, "capture": False, "environment": {}, "layout": None})
    played = lab.play("trial.yml")
    assert played.returncode == 0, played.stdout
    started = (lab.folder / "worker-1" / "run" / "cluster.env").read_text()
    assert f"DASKLAB_PYTHON={lab.folder}/worker-1/dask/bin/python" in started
    assert {path.name for path in lab.trial.glob("profile-*.json")} == {
        f"profile-{host}.json" for host in ("scheduler", "worker-1", "worker-2", "worker-3")
    }
    assert lab.calls("client").count("dasklab_forkserver.py array_study.py") == 2


def test_a_workload_that_hangs_is_said_to_hang(lab: DryLab) -> None:
    lab.say("client", "dasklab_forkserver.py array_study.py", "", status=124)
    assert lab.play("trial.yml").returncode != 0
    [reason] = lab.written("failed.json")["reasons"]
    assert reason == "client: Run the workload: it hung, it was not done within 60 s"
    assert {lab.calls(host)[-1] for host in HOSTS} == {"all "}


def test_an_answer_that_is_no_json_fails_the_trial_in_one_line(lab: DryLab) -> None:
    lab.say("client", "dasklab_forkserver.py array_study.py", json.dumps(TIMINGS)[:30])
    done = lab.play("trial.yml")
    assert done.returncode != 0
    assert [line.split(" (")[0] for line in failures(done)] == [
        "  FAILED  client: workload : Run the workload",
        "          the answer is no JSON",
    ]
    [reason] = lab.written("failed.json")["reasons"]
    assert reason.startswith("client: Run the workload: the answer is no JSON (")
    assert not (lab.trial / "timings.json").exists()
    assert {lab.calls(host)[-1] for host in HOSTS} == {"all "}


def test_one_cause_on_five_machines_is_told_once_and_is_no_failure_where_it_is_unsupported(
    lab: DryLab,
) -> None:
    for host in HOSTS:
        lab.say(host, "dasklab_link.py apply", '{"schema": 1, "unsupported": "tc: no netem"}', status=3)
    done = lab.play("trial.yml")
    assert failures(done) == [
        f"  FAILED  {', '.join(HOSTS)}: netem : Impair the lab link",
        "          unsupported: tc: no netem",
    ]
    assert lab.written("failed.json")["status"] == "unsupported"
    assert len(done.stdout.splitlines()) < 24


def test_a_wrong_value_is_refused_before_a_host_is_touched(lab: DryLab) -> None:
    lab.ask({**TRIAL, "ttl_s": "soon", "probes": {**TRIAL["probes"], "udp": "perhaps"}})
    done = lab.play("trial.yml")
    assert done.returncode != 0
    said = "\n".join(failures(done))
    assert re.search(r"argument 'netem_ttl_s' is of type str and we were unable to convert to int", said)
    assert re.search(r"argument 'probe_udp' is of type str and we were unable to convert to bool", said)
    assert said.count("FAILED") == said.count("'netem_ttl_s'") == 1
    assert {tuple(lab.calls(host)) for host in HOSTS} == {("all ",)}


def test_no_role_is_let_off_its_contract_and_each_host_is_asked_once(lab: DryLab) -> None:
    books = (ROOT / "playbooks").rglob("*.yml")
    assert [path.name for path in books if "rolespec_validate" in path.read_text()] == []
    configure, _, _ = lab.play("configure.yml", "--list-tasks").stdout.partition("): Configure the client")
    assert "Validating arguments" not in configure
    assert configure.count("Hold the roles to their contracts") == 1
    before, _, tasks = lab.play("trial.yml", "--list-tasks").stdout.partition("): Measure")
    on_hosts = [
        line for line in tasks.splitlines() if "Validating arguments" in line and "proxmox" not in line
    ]
    assert on_hosts == []
    assert "Configure what was made anew" in before or "Configure the machines" in before
    assert tasks.count("Hold the roles to their contracts") == 1


def test_machines_that_were_started_are_waited_for_and_new_ones_configured(lab: DryLab) -> None:
    done = {"created": ["worker-2"], "started": ["worker-1", "worker-2"]}
    (lab.folder / "done").write_text(json.dumps(done))
    without_environment = ["-e", "dask_python=false"]  # to make Dask's would take seconds
    told = lab.play("trial.yml", *without_environment).stdout
    assert "Wait for ssh: ok 2" in told
    _, _, configured = told.partition("Configure the machines\n")
    assert "FAILED  worker-2: dask : Install the pins" in configured, told
    assert "worker-1" not in configured


def test_a_host_that_cannot_be_reset_keeps_no_other_one_impaired_and_no_nic_changed(lab: DryLab) -> None:
    lab.say("worker-2", "all ", "dasklab_link: tc: busy\n", status=1)
    done = lab.play("reset.yml")
    assert done.returncode != 0
    assert "  FAILED  worker-2: base : Reset the host\n" in done.stdout
    assert [lab.calls(host) for host in HOSTS] == [["all "]] * len(HOSTS)
    assert lab.asked() == [{"nics": {}, "guests": {}, "state": "started"}]


def test_spark_takes_the_cluster_s_place_and_is_told_what_the_trial_asks(lab: DryLab) -> None:
    """Its master is on the scheduler's host, a worker on each that takes part."""
    lab.give_java()
    asked = {"engine": "spark", "spark": {"spark.shuffle.compress": False}, "workers": 2, "layout": None}
    alone = {
        "dask": {},
        "capture": False,
        "resolved_scheduler": {**TRIAL["resolved_scheduler"], "variant": None, "preload": ""},
    }
    lab.ask({**TRIAL, **asked, **alone, "workload": {"name": "join", "params": {"rows": 9}}})
    done = lab.play("trial.yml")
    assert done.returncode == 0, done.stdout
    started = [line for line in lab.units() if "spark-class" in line]
    units = {host: [line for line in started if f"/{host}/" in line] for host in HOSTS}
    assert {host: len(lines) for host, lines in units.items()} == {
        "client": 0, "scheduler": 1, "worker-1": 1, "worker-2": 1, "worker-3": 0,
    }  # fmt: skip
    assert "--unit=spark-master " in units["scheduler"][0] and "--property=RuntimeMaxSec=60 " in started[0]
    assert units["scheduler"][0].endswith("master.Master --host 10.9.0.12 --port 7077 --webui-port 7082")
    assert "--port 7078 " in units["worker-1"][0] and units["worker-1"][0].endswith(" spark://10.9.0.12:7077")
    assert not any("dask" in line.split("spark-class")[0].split("--setenv")[0] for line in started)
    own = (lab.spark("client") / "conf" / "spark-defaults.conf").read_text().splitlines()
    assert {"spark.driver.host 10.9.0.11", "spark.driver.port 7079", "spark.shuffle.compress false"} <= set(
        own
    )
    [words] = [
        line for line in (lab.folder / "client" / "words").read_text().splitlines() if "_spark_" in line
    ]
    assert "--scheduler spark://10.9.0.12:7077 " in words and "--workers 2 " in words
    assert "--settings spark.shuffle.compress" in words
    assert "spark" in (lab.folder / "client" / "reset.d" / "spark").read_text()


def test_with_dask_nothing_of_spark_is_installed_or_started(lab: DryLab) -> None:
    lab.ask({**TRIAL, "capture": False})
    assert lab.play("trial.yml").returncode == 0
    assert not any("spark" in line for line in lab.units())
    assert not any((lab.folder / host / "reset.d" / "spark").exists() for host in HOSTS)
