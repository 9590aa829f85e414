"""Orders: steps are carried out in turn, answers are kept, and a problem is one line with its place."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dasklab_guest import order
from dasklab_guest.common import HostError, UnsupportedError


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A part of the program in place of ``link``, with two steps."""

    def refuse() -> None:
        raise UnsupportedError("no netem")

    part = SimpleNamespace(STEPS={"double": lambda number: 2 * number, "refuse": refuse})
    monkeypatch.setattr(order.importlib, "import_module", lambda name: part)
    return part


def document(*steps: tuple[str, dict[str, Any]], phase: str = "run", **more: Any) -> dict[str, Any]:
    listed = [{"do": do, "arguments": arguments} for do, arguments in steps]
    return {"version": order.VERSION, "phase": phase, "steps": listed, **more}


def answers(folder: Path) -> Any:
    return json.loads((folder / order.ANSWERS).read_text())


def test_answers_of_all_phases_are_kept(part: SimpleNamespace, tmp_path: Path) -> None:
    order.carry_out(document(("link.double", {"number": 2}), phase="a", first=True), tmp_path)
    order.carry_out(document(("link.double", {"number": 3}), phase="b"), tmp_path)
    assert answers(tmp_path) == {"a": {"link.double": 4}, "b": {"link.double": 6}}


def test_first_order_removes_what_an_earlier_trial_left(part: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "capture.pcap").write_text("old")
    order.carry_out(document(("link.double", {"number": 1}), first=True), tmp_path)
    assert order.files(tmp_path) == {"folder": str(tmp_path), "files": [order.ANSWERS]}


def test_failed_step_ends_the_order(part: SimpleNamespace, tmp_path: Path) -> None:
    steps = [("link.double", {"number": 1}), ("link.refuse", {}), ("link.double", {"number": 5})]
    with pytest.raises(UnsupportedError, match=r"^no netem"):
        order.carry_out(document(*steps), tmp_path)
    assert answers(tmp_path) == {"run": {"link.double": 2}}


def test_order_of_another_version_is_refused(part: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="orders of version 1, not 2"):
        order.carry_out({**document(), "version": 2}, tmp_path)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("link.treble", "no step 'link.treble'"),
        ("nothing.at.all", "no step 'nothing.at.all'; there are capture, cluster"),
    ],
)
def test_unknown_steps_are_refused(step: str, message: str) -> None:
    with pytest.raises(HostError, match=message):
        order.function_of(step)


def test_every_part_is_reset_even_if_another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    reset: list[str] = []

    def part(name: str) -> SimpleNamespace:
        def run() -> None:
            reset.append(name)
            if name == "capture":
                raise HostError("tcpdump does not end")

        return SimpleNamespace(reset=run)

    monkeypatch.setattr(order, "parts", lambda: {name: part(name) for name in ("capture", "link")})
    with pytest.raises(HostError, match="could not reset capture: tcpdump does not end"):
        order.reset()
    assert reset == ["capture", "link"]
