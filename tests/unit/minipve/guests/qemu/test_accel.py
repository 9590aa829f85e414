"""The choice between KVM and TCG."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from minipve.base.paths import Paths
from minipve.guests.qemu import running
from minipve.guests.qemu.running import Accel


@pytest.mark.parametrize(
    ("console", "name"),
    [
        ("[    0.6] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)", "kvm"),
        ("SeaBIOS (version 1.16.2)\nBooting from ROM..", "tcg"),
        ("", "tcg"),
        ("qemu-system-x86_64: kvm_buf_set_msrs: Assertion failed", "tcg"),
    ],
)
def test_only_the_expected_panic_proves_kvm(console: str, name: str) -> None:
    result = running.judge(console, 1.0)
    assert result.name == name and result.reason


def test_tcg_without_the_kvm_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "DEVICE", tmp_path / "kvm")
    monkeypatch.setattr(running, "_key", lambda: "boot 1")
    result = running.probe(Paths(tmp_path, tmp_path))
    assert (result.name, result.reason) == (
        "tcg",
        f"{tmp_path}/kvm cannot be opened: No such file or directory",
    )


def test_result_is_cached_until_the_host_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([Accel("kvm", "first"), Accel("tcg", "second")])
    monkeypatch.setattr(running, "_opening_problem", lambda: None)
    monkeypatch.setattr(running, "_probe", lambda _paths: next(results))
    key = ["boot 1"]
    monkeypatch.setattr(running, "_key", lambda: key[0])
    paths = Paths(tmp_path, tmp_path)
    assert [running.probe(paths).reason for _ in range(2)] == ["first", "first"]
    key[0] = "boot 2"
    assert running.probe(paths).reason == "second"
    assert json.loads((tmp_path / "accel.json").read_text())["key"] == "boot 2"


def test_no_result_is_cached_without_a_golden_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_opening_problem", lambda: None)
    monkeypatch.setattr(running, "_probe", lambda _paths: None)
    monkeypatch.setattr(running, "_key", lambda: "boot 1")
    assert running.probe(Paths(tmp_path, tmp_path)).name == "tcg"
    assert not (tmp_path / "accel.json").exists()
