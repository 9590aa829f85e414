"""Files come whole from a host, or what is missing is told: the action run by Ansible itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lab.paths import ROOT


def test_files_are_fetched_and_a_file_cut_short_is_told(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "capture.pcap").write_bytes(b"12345")

    def fetch(size: int) -> str:
        asked = {"src": f"{tmp_path}/there", "sizes": {"capture.pcap": size}, "dest": f"{tmp_path}/here"}
        program = Path(sys.executable).with_name("ansible")
        argv = [program, "localhost", "-i", "localhost,", "-m", "lab_fetch", "-a", json.dumps(asked)]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True).stdout

    assert "changed" in fetch(5)
    assert (tmp_path / "here" / "capture.pcap").read_bytes() == b"12345"
    assert "capture.pcap has 5 bytes; on the host it had 7" in fetch(7)
