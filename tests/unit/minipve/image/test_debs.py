"""Debian packages for a guest are resolved against its own packages, and downloaded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from minipve.image import debs


def test_packages_are_resolved_as_on_the_guest_and_cached_by_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIPVE_CACHE", str(tmp_path))
    monkeypatch.setattr(debs.debian, "host_mirrors", lambda suite: [f"deb http://mirror {suite} main"])
    monkeypatch.setattr(debs, "require_tools", lambda *_: None)
    calls: list[list[str]] = []

    def run(words: list[str], log: Path, *_: Any) -> None:
        calls.append(words)
        if "install" in words:
            (log.parent / "archives" / "jre_17_amd64.deb").write_text("deb")

    monkeypatch.setattr(debs.build_tools, "run_logged", run)
    status = tmp_path / "status"
    status.write_text("Package: libc6\n")
    archive = debs.fetch(status, ["jre"])
    with debs.tarfile.open(archive) as tar:
        assert tar.getnames() == ["jre_17_amd64.deb"]
    assert [words[-1] for words in calls] == ["update", "jre"]
    assert f"--option=Dir::State::status={status}" in calls[1] and "--download-only" in calls[1]
    assert debs.fetch(status, ["jre"]) == archive and len(calls) == 2
    status.write_text("Package: libc6\n\nPackage: jre-headless\n")
    assert debs.archive_path(status, ["jre"]) != archive
    assert list((tmp_path / "debs").glob(".build-*")) == []
