"""A kernel without netem: the real run and check mode refuse alike. ``tc`` and ``unshare`` are stand-ins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from dasklab_guest import link
from dasklab_guest.common import UnsupportedError

HOST = {"hosts": {}, "lab": {"name": "eth1"}, "management_address": "192.0.2.1"}
DEVICE = {"ifname": "eth1", "mtu": 1500}
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
