"""The wheel in a fresh environment: the lab's tutorial as it is written, then the other programs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from dasklab.paths import SHARE as ROOT
from minipve.base.paths import Paths

from tests import tutorials
from tests.e2e.installed import Installed

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]
CAPTURE = ROOT / "tests" / "data" / "wire" / "g3-2026.8.0.pcap.gz"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The environment; what a failed test leaves is removed by the program's own commands."""
    wanted = f"dasklab[lab,minipve,report] @ {wheel.as_uri()}"
    folder = tmp_path_factory.mktemp("user")
    installed = Installed.make(folder, [wanted], lock=ROOT / "requirements.lock")
    yield installed
    if (folder / "tutorial" / "home" / "state" / "dasklab" / "mylab").exists():
        state = str(folder / "tutorial" / "home" / "state")
        lab = folder / "tutorial" / "work" / "mylab"
        installed.run(lab, "dasklab", "destroy", "--yes", XDG_STATE_HOME=state)
    if (folder / "home" / ".local" / "state" / "minipve").exists():
        installed.run(folder, "minipve", "stop", "--purge")


@pytest.fixture(scope="module")
def folder(installed: Installed) -> Path:
    """The folder that the user works in."""
    return installed.folder


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


@pytest.fixture(scope="module")
def lab(installed: Installed, folder: Path) -> Path:
    """The folder of the tutorial's lab, which the tutorial built, measured and removed.

    The guests' image takes minutes to build: this user shares the cache of the one who tests.
    """
    user = folder / "tutorial"
    user.mkdir()
    environment = installed.environment
    path = f"{installed.program('dasklab').parent}{os.pathsep}{environment['PATH']}"
    variables = {**environment, "PATH": path, "MINIPVE_CACHE": str(Paths.of().cache)}
    tutorials.run("lab", user, variables, timeout_s=1700)
    return user / "work" / "mylab"


def test_tutorial_of_the_lab_runs_as_written(installed: Installed, folder: Path, lab: Path) -> None:
    assert not installed.log.exists(), f"the checkout was used:\n{installed.log.read_text()}"
    assert list((lab / "results" / "baseline").glob("*/samples.parquet"))
    assert list((lab / "results" / "slow").rglob("report.html"))


def test_destroy_left_nothing(folder: Path, lab: Path) -> None:
    assert processes(folder) == []
    assert not (folder / "tutorial" / "home" / "state" / "dasklab" / "mylab").exists()
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


def test_run_is_explained_after_its_lab_is_gone(installed: Installed, folder: Path, lab: Path) -> None:
    [run] = (path.parent for path in (lab / "results" / "slow").glob("*/experiment.json"))
    assert "link=5M" in installed.good(folder, "dasklab", "explain", str(run))


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
