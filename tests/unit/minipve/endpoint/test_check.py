"""What `minipve check` reports."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from minipve.base import process
from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.endpoint import check
from minipve.endpoint.cli import minipve
from minipve.guests.lxc import limits
from minipve.network import namespace

HOW_TO = (Path(__file__).parents[4] / "docs/how-to/minipve.md").read_text()


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(namespace, "missing_impairments", list)
    monkeypatch.setattr(namespace, "require_tun", lambda: None)
    monkeypatch.setattr(namespace, "require_network", lambda: None)
    monkeypatch.setattr(namespace, "can_create", lambda: True)
    return Paths(tmp_path / "state", tmp_path / "cache")


def without(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    monkeypatch.setattr(process, "which", lambda name: None if name in programs else f"/usr/bin/{name}")


def test_every_program_has_a_package() -> None:
    programs = {program for programs in check.PURPOSES.values() for program in programs}
    assert programs <= set(process.PACKAGES)


def test_programs_of_virtual_machines_are_required(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "qemu-system-x86_64", "qemu-img")
    report = check.check(paths)
    assert "missing  not installed: qemu-img, qemu-system-x86_64 (virtual machines)" in report.lines
    assert (report.packages, report.usable) == (["qemu-system-x86", "qemu-utils"], False)


def test_programs_of_containers_are_optional(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "lxc-start", "lxc-usernsexec", "mmdebstrap", "qemu-system-x86_64")
    monkeypatch.setattr(check, "REQUIRED", ("endpoint",))
    report = check.check(paths)
    assert "missing  not installed: lxc-start, lxc-usernsexec (containers)" in report.lines
    assert (report.packages, report.usable) == (["lxc", "mmdebstrap", "qemu-system-x86"], True)


def test_missing_tun_device_is_reported(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise UserError("no tun driver", "modprobe tun")

    without(monkeypatch, "qemu-system-x86_64")
    monkeypatch.setattr(namespace, "require_tun", fail)
    monkeypatch.setattr(check, "REQUIRED", ("endpoint",))
    report = check.check(paths)
    assert ("missing  no tun driver\n  modprobe tun" in report.lines, report.usable) == (True, False)


def test_command_prints_the_apt_line_and_fails(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "tc", "qemu-system-x86_64")
    monkeypatch.setenv("MINIPVE_STATE", str(paths.state))
    result = CliRunner().invoke(minipve, ["check"])
    assert result.exit_code == 1
    assert result.stdout.endswith("\napt install iproute2 qemu-system-x86\n")


def test_only_the_needs_of_the_requested_guests_are_checked(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "qemu-system-x86_64", "xorriso")
    monkeypatch.setattr(limits, "problem", lambda: "")
    assert check.check(paths, ["container"]).usable
    report = check.check(paths, ["vm"])
    assert (report.usable, report.packages) == (False, ["qemu-system-x86", "xorriso"])
    assert not any("containers" in line for line in report.lines)


def test_containers_without_root_are_missing_and_not_ok(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(limits, "read", lambda file: [])
    report = check.check(paths, ["container"])
    assert [line for line in report.lines if not line.startswith("ok")] == [
        "missing  containers need root: use sudo, or virtual machines",
        "note     guests' image: not built yet; that takes minutes: minipve image",
    ]
    assert "ok       containers" not in report.lines
    assert not report.usable


def test_user_without_ids_cannot_build_the_image(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    monkeypatch.setattr(check, "_add_accelerator", lambda *_: None)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(limits, "read", lambda file: [("other", 100_000, 65_536)])
    [missing] = [line for line in check.check(paths, ["vm"]).lines if line.startswith("missing")]
    assert missing.splitlines()[1] == (
        "  sudo usermod --add-subuids 165536-231071 --add-subgids 165536-231071 nobody"
    )
    assert check.check(paths).usable, "an image may exist elsewhere"
    monkeypatch.setattr(limits, "read", lambda file: [("nobody", 100_000, 65_536)])
    assert check.check(paths, ["vm"]).usable


def test_json_has_what_the_kernel_lacks(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "qemu-system-x86_64")
    monkeypatch.setattr(namespace, "missing_impairments", lambda: ["netem"])
    monkeypatch.setenv("MINIPVE_STATE", str(paths.state))
    printed = json.loads(CliRunner().invoke(minipve, ["check", "--json"]).stdout)
    assert (printed["kernel_lacks"], printed["packages"]) == (["netem"], ["qemu-system-x86"])
    assert any(finding["text"].endswith("in their own kernel") for finding in printed["findings"])


@pytest.mark.parametrize("rootless", [False, True])
def test_kernel_is_tried_with_the_programs_of_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rootless: bool
) -> None:
    """A user's PATH has no /usr/sbin; without it, tc would be missing and netem seem to be."""
    words = tmp_path / "unshare"
    words.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/words\ncase $PATH in */usr/sbin*) ;; *) exit 1;; esac\n'
    )
    words.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if rootless else 0)
    assert namespace.missing_impairments() == []
    assert ("--map-root-user" in (tmp_path / "words").read_text()) == rootless


def packages(*purposes: str) -> set[str]:
    return {process.PACKAGES[program] for purpose in purposes for program in check.PURPOSES[purpose]}


def test_how_to_names_the_packages_of_each_purpose() -> None:
    """Also its container file and its job for GitHub Actions, whose image contains some of them."""
    machines = packages("endpoint", "virtual machines")
    lines = re.findall(r"^apt install (.+)$", HOW_TO, re.MULTILINE)
    documented = [set(line.split()) for line in lines]
    assert documented == [
        machines,
        packages("containers"),
        packages("image build") - packages("containers"),
    ]
    container = HOW_TO.partition("```dockerfile")[2].partition("```")[0]
    assert machines <= set(container.split())
    job = HOW_TO.partition("## GitHub Actions")[2].partition("```yaml")[2].partition("```")[0]
    assert machines - {"iproute2", "util-linux"} <= set(job.split())


def test_how_to_installs_the_packages_that_minipve_imports() -> None:
    imported = set()
    for file in Path(check.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    imported = {{"yaml": "pyyaml"}.get(name, name) for name in imported}
    needed = imported - set(sys.stdlib_module_names) - {"minipve", "pytest"}
    for line in re.findall(r"pip install (aiohttp[^&\n]*)", HOW_TO):
        assert set(line.split()) - {"\\"} == needed
    assert HOW_TO.count("pip install aiohttp") == 3
