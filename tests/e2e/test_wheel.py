"""The wheel, installed in a fresh environment and used in an empty folder, in the order of a lab's life."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from dasklab.paths import SHARE as ROOT
from minipve.paths import Paths

from tests.e2e.installed import Installed

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]
CAPTURE = ROOT / "tests" / "data" / "wire" / "g3-2026.8.0.pcap.gz"
WORKLOAD = '''
"""A workload of the user's own."""

from _harness import Job, main


def prepare(client, tasks=20):
    def run(number):
        return float(sum(client.gather(client.map(abs, range(tasks), pure=False))))

    return Job(run, expected=tasks * (tasks - 1) / 2, tasks=tasks)


if __name__ == "__main__":
    main(prepare)
'''
EXPERIMENT = """
title: My own experiment
question: Do more tasks take longer?
metrics: {compute_s: ~}
workload: {name: mywork}
factors: {tasks: {sets: workload.params.tasks, levels: [20, 200]}}
runs: 2
blocks: 1
probes: {pings: 2, iperf_runs: 0}
run_s: 1
tolerances: {foreign_pct: 100} # other tests are at work on this machine
"""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The environment; what a failed test leaves is removed by the program's own commands."""
    wanted = f"dasklab[lab,minipve,report] @ {wheel.as_uri()}"
    folder = tmp_path_factory.mktemp("user")
    installed = Installed.make(folder, [wanted, "-c", str(ROOT / "constraints.txt")])
    yield installed
    states = folder / "home" / ".local" / "state"
    if (states / "dasklab" / "mylab").exists():
        installed.run(folder / "mylab", "dasklab", "destroy", "--yes")
    if (states / "minipve").exists():
        installed.run(folder, "minipve", "stop", "--purge")


@pytest.fixture(scope="module")
def folder(installed: Installed) -> Path:
    """The folder that the user works in."""
    return installed.folder


@pytest.fixture(scope="module")
def image_cache() -> dict[str, str]:
    """The guests' image takes minutes to build: this user shares the cache of the one who tests."""
    return {"MINIPVE_CACHE": str(Paths.of().cache)}


def processes(folder: Path) -> list[str]:
    """Command lines of all processes that name a folder."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended
            continue
        if str(folder) in line:
            lines.append(f"{entry.name}: {line[:200]}")
    return lines


def test_modules_are_those_of_the_environment(installed: Installed, folder: Path) -> None:
    modules = "import dasklab, daskwire, minipve; print(*(m.__file__ for m in (dasklab, daskwire, minipve)))"
    paths = installed.good(folder, "python", "-c", modules).split()
    assert len(paths) == 3 and all(path.startswith(str(installed.folder / "venv")) for path in paths)


def test_checkout_is_watched(installed: Installed, folder: Path) -> None:
    """Otherwise no other test here would notice that a program uses it."""
    installed.run(folder, "python", "-c", f"open({str(ROOT / 'README.md')!r})")
    assert "README.md" in installed.log.read_text()
    installed.log.unlink()


def test_init_writes_a_lab(installed: Installed, folder: Path) -> None:
    printed = installed.good(folder, "dasklab", "init", "mylab", "--containers")
    assert printed.endswith(f"  cd {folder / 'mylab'}\n  dasklab up\n")
    inventory = (folder / "mylab" / "inventory" / "group_vars" / "all.yml").read_text()
    assert "lab_name: mylab" in inventory and "lab_guests: container" in inventory
    assert str(ROOT) not in (folder / "mylab" / "ansible.cfg").read_text()


def test_up_builds_the_lab_and_measures_it(
    installed: Installed, folder: Path, image_cache: dict[str, str]
) -> None:
    printed = installed.good(folder / "mylab", "dasklab", "up", **image_cache)
    assert re.search(r"compute_s +3 ", printed), printed[-3000:]
    assert list((folder / "mylab" / "results" / "baseline").glob("*/samples.parquet"))
    assert (folder / "home" / ".local" / "state" / "dasklab" / "mylab" / "endpoint.json").exists()


@pytest.fixture(scope="module")
def run(installed: Installed, folder: Path, image_cache: dict[str, str]) -> Path:
    """A run of an experiment of the user's own, with a workload beside it, started in another folder."""
    lab, mine = folder / "mylab", folder / "mine"
    mine.mkdir()
    (mine / "mywork.py").write_text(WORKLOAD)
    (mine / "my.yml").write_text(EXPERIMENT)
    printed = installed.good(lab, "dasklab", "run", "../mine/my.yml", "--no-wait", **image_cache)
    [run] = (lab / "results" / "my").iterdir()
    results = [json.loads(path.read_text()) for path in run.glob("*/result.json")]
    assert [result["status"] for result in results] == ["ok"] * 3, printed[-3000:]
    return run


def test_own_workload_runs_on_the_guests(run: Path) -> None:
    timings = [json.loads(path.read_text()) for path in run.glob("*/timings.json")]
    assert sorted(each["tasks"] for each in timings) == [20, 20, 200]
    assert {each["workload"] for each in timings} == {"mywork"}


def test_report_is_written(installed: Installed, folder: Path, run: Path) -> None:
    page = installed.good(folder, "dasklab", "report", str(run)).strip().splitlines()[-1]
    assert "My own experiment" in Path(page).read_text()


def test_run_is_explained(installed: Installed, folder: Path, run: Path) -> None:
    assert "tasks=200" in installed.good(folder, "dasklab", "explain", str(run))


def test_destroy_leaves_nothing(installed: Installed, folder: Path, image_cache: dict[str, str]) -> None:
    installed.good(folder / "mylab", "dasklab", "destroy", "--yes", **image_cache)
    assert processes(folder) == []
    assert not (folder / "home" / ".local" / "state" / "dasklab" / "mylab").exists()
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


def test_daskwire_reads_a_capture(installed: Installed, tmp_path: Path) -> None:
    capture = shutil.copy(CAPTURE, tmp_path)
    expected = json.loads(CAPTURE.with_name("g3-2026.8.0.json").read_text())
    printed = installed.good(tmp_path, "daskwire", Path(capture).name)
    assert expected and "scheduler" in printed


def test_minipve_answers_the_api_without_a_lab(installed: Installed, tmp_path: Path) -> None:
    printed = installed.good(tmp_path, "minipve", "serve", "--detach")
    state = installed.folder / "home" / ".local" / "state" / "minipve" / "default"
    assert str(state) in printed
    facts = json.loads((state / "endpoint.json").read_text())
    token = f"PVEAPIToken={facts['user']}!{facts['token_id']}={facts['token_secret']}"
    answer = requests.get(
        f"https://{facts['host']}:{facts['port']}/api2/json/version",
        headers={"Authorization": token},
        verify=facts["ca_file"],
        timeout=60,
    )
    assert answer.json()["data"]["repoid"] == "6d696e69707665"
    installed.good(tmp_path, "minipve", "stop", "--purge")
    assert processes(installed.folder) == []
    assert not state.exists()
