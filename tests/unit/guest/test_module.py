"""The module that lets the guest program act in Ansible's own Python on a host."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from dasklab_guest import order
from dasklab_guest.common import UnsupportedError

from tests.unit.roles.conftest import load


@pytest.fixture(autouse=True)
def _keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "keep", lambda *answers: None)


def result_of(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    """Run the module and return the result that Ansible would read."""
    with patch_module_args(arguments), pytest.raises(SystemExit):
        load("playbooks/library/guest_program.py").main()
    return dict(json.loads(capsys.readouterr().out))


def test_answers_of_an_order_are_returned(capsys: pytest.CaptureFixture[str]) -> None:
    request = {"version": 1, "phase": "prepare", "steps": [{"do": "host.clock"}]}
    result = result_of(capsys, action="carry-out", order=request)
    assert result["changed"]
    assert result["answer"]["host.clock"]["time_s"] > 0


def test_files_are_listed_without_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(capsys, action="files")
    assert not result["changed"]
    assert set(result["answer"]) == {"folder", "files"}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"version": 0},
            "dasklab-guest: this host carries out orders of version 1, not 0; configure it again",
        ),
        (
            {"version": 1, "phase": "run", "steps": [{"do": "link.sing"}]},
            "dasklab-guest: no step 'link.sing'; link has",
        ),
    ],
)
def test_refused_order_fails_in_one_line(
    capsys: pytest.CaptureFixture[str], request_: dict[str, Any], message: str
) -> None:
    result = result_of(capsys, action="carry-out", order=request_)
    assert result["failed"]
    assert result["msg"].startswith(message)


def test_what_a_kernel_cannot_do_is_reported_as_unsupported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: object) -> None:
        raise UnsupportedError("no netem")

    monkeypatch.setattr(order, "carry_out", refuse)
    assert result_of(capsys, action="carry-out", order={})["msg"] == "unsupported: no netem"
