"""A kernel without netem: the real run and check mode refuse alike. ``tc`` and ``unshare`` are stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dasklab_guest import link
from dasklab_guest.common import UnsupportedError

HOST = {"name": "worker-1", "hosts": {}, "lab": {"name": "eth1"}, "management_address": "192.0.2.1"}
DEVICE = {"ifname": "eth1", "mtu": 1500, "flags": ["UP"]}
UNKNOWN = 'echo "Error: Specified qdisc kind is unknown." >&2; exit 2'
TC = """#!/bin/sh
echo "tc $*" >>{folder}/words
case "$*" in
    *netem*) {netem} ;;
    *show*) echo "[]" ;;
esac
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without netem; returns the file that lists what it was asked."""
    programs = {
        "tc": TC.format(folder=tmp_path, netem=UNKNOWN),
        "unshare": '#!/bin/sh\nshift\nexec "$@"\n',
        "systemd-detect-virt": f"#!/bin/sh\ntest -e {tmp_path}/container\n",
        "systemd-run": "#!/bin/sh\n",
        "systemctl": "#!/bin/sh\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(link, "STATE", tmp_path / "run" / "link.json")
    monkeypatch.setattr(link, "host", lambda: HOST)
    monkeypatch.setattr(link, "interfaces", lambda: [{**DEVICE, "addr_info": []}])
    (tmp_path / "container").touch()
    return tmp_path / "words"


@pytest.mark.parametrize("check", [False, True])
def test_netem_is_refused_with_what_helps(kernel: Path, check: bool) -> None:
    with pytest.raises(UnsupportedError, match=r"^this kernel has no netem; use virtual machines$"):
        link.apply([{"delay_ms": 50}], 60, check=check)
    (kernel.parent / "container").unlink()
    with pytest.raises(UnsupportedError, match="install the package that has sch_netem"):
        link.apply([{"loss_pct": 1}], 60, check=check)
    assert not link.STATE.exists()


def test_check_mode_touches_no_interface(kernel: Path) -> None:
    answer: dict[str, Any] = link.apply([{"rate_mbit": 50}], 60, check=True)
    assert answer["changed"]
    assert "netem" not in kernel.read_text(), "a rate alone needs none"
    with pytest.raises(UnsupportedError):
        link.apply([{"delay_ms": 50}], 60, check=True)
    assert [line for line in kernel.read_text().splitlines() if " add " in line] == [
        "tc qdisc add dev lo root netem delay 1ms"
    ]


def test_namespace_that_cannot_be_made_says_nothing_about_the_kernel(kernel: Path) -> None:
    (kernel.parent / "unshare").write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2; exit 1\n")
    assert link.apply([{"delay_ms": 50}], 60, check=True)["changed"]


BY_HAND = """
import json, subprocess, sys
from pathlib import Path
from dasklab_guest import link

link.STATE, link.host = Path(sys.argv[1]), lambda: json.loads(sys.argv[2])
link.stop_units = link.start_timer = lambda *words, **properties: None

def run(*lines):
    for line in lines:
        subprocess.run(line.split(), check=True)

run("ip link add eth1 type veth peer name other", "ip link set other up", "ip link set eth1 up")
answers = [link.show()["differences"]]
run("tc qdisc add dev eth1 root handle 800e: pfifo limit 9", "tc qdisc add dev eth1 clsact")
run("ip link set eth1 down")
link.reset()
for action in (lambda: link.mend(check=True), link.mend, link.mend):
    answers.append(action())
run("ip link set other down")
try:
    answers.append(link.mend())
except link.HostError as error:
    answers.append(str(error))
print(json.dumps(answers))
"""


def test_what_the_lab_did_not_request_is_named_and_mended(tmp_path: Path) -> None:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    argv = [
        "unshare",
        *user,
        "--net",
        sys.executable,
        "-c",
        BY_HAND,
        str(tmp_path / "state"),
        json.dumps(HOST),
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(link.__file__).parents[1])}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, checked, mended, again, without_carrier = json.loads(done.stdout)
    differences = [
        "eth1 is down",
        *(f"eth1 has a qdisc {name} that the lab did not create" for name in ("pfifo 800e:", "clsact ffff:")),
    ]
    removed = ["removed qdisc pfifo 800e: from eth1", "removed qdisc clsact ffff: from eth1", "set eth1 up"]
    nothing: dict[str, list[str]] = {"differences": [], "mended": []}
    assert (before, again) == ([], nothing)
    assert checked == {"differences": differences, "mended": []}
    assert mended == {"differences": differences, "mended": removed}
    assert without_carrier == "eth1 has no carrier"
