"""Files come whole from a host, or what is missing is told: the action run by Ansible itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dasklab.paths import SHARE as ROOT


def test_files_are_fetched_and_a_file_cut_short_is_told(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "capture.pcap").write_bytes(b"12345")

    def fetch(size: int) -> str:
        asked = {"src": f"{tmp_path}/there", "sizes": {"capture.pcap": size}, "dest": f"{tmp_path}/here"}
        program = Path(sys.executable).with_name("ansible")
        argv = [
            program,
            "localhost",
            "-i",
            "localhost,",
            "-c",
            "local",
            "-m",
            "lab_fetch",
            "-a",
            json.dumps(asked),
        ]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True).stdout

    assert "changed" in fetch(5)
    assert (tmp_path / "here" / "capture.pcap").read_bytes() == b"12345"
    (tmp_path / "there" / "capture.pcap").write_bytes(b"1234")
    assert "capture.pcap has 4 bytes; on the host it had 7" in fetch(7)
    assert [file.read_bytes() for file in (tmp_path / "here").iterdir()] == [b"12345"]


def test_a_template_is_written_below_the_directory_once_and_a_difference_is_shown(tmp_path: Path) -> None:
    (tmp_path / "unit.j2").write_text("{% for n in [1, 2] %}\nline {{ n }} of {{ who }}\n{% endfor %}\n")
    file = {"path": "a/unit", "template": str(tmp_path / "unit.j2"), "mode": "0640"}
    asked = json.dumps({"directory": str(tmp_path / "host"), "files": [file]})

    def write() -> str:
        program = Path(sys.executable).with_name("ansible")
        argv = [
            program,
            "localhost",
            "-i",
            "localhost,",
            "-c",
            "local",
            "-m",
            "lab_files",
            "-a",
            asked,
            "-e",
            "who=me",
            "--diff",
        ]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True).stdout

    written = tmp_path / "host" / "a" / "unit"
    assert "+line 2 of me" in write()
    assert written.read_text() == "line 1 of me\nline 2 of me\n"
    assert "+line" not in write()
    written.write_text("drifted\n")
    assert "-drifted" in write()
    assert written.read_text() == "line 1 of me\nline 2 of me\n"
