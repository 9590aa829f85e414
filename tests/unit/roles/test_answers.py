"""What a command on a host said becomes an answer, or one line on why there is none."""

from __future__ import annotations

from types import ModuleType

import pytest


def test_an_answer_is_kept_as_it_is(lab_command: ModuleType) -> None:
    done = lab_command.outcome(0, '{"samples": [{"seconds": 0.1000000000000000055}], "n": null}\r\n', "")
    assert done == {"rc": 0, "answer": {"samples": [{"seconds": 0.1}], "n": None}}
    assert lab_command.outcome(0, "null\n", "") == {"rc": 0, "answer": None}


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        ("", "Expecting value"),
        ('{"samples": [1, 2', "Expecting ',' delimiter"),
        ('warning: slow\n{"samples": []}', "Expecting value"),
        ('{"seconds": NaN}', "NaN is no number"),
    ],
)
def test_what_is_no_json_is_refused_in_one_line(lab_command: ModuleType, stdout: str, why: str) -> None:
    done = lab_command.outcome(0, stdout, "")
    assert done["failed"]
    assert done["msg"].startswith(f"the answer is no JSON ({why}")
    assert "\n" not in done["msg"]
    assert repr(stdout)[1:20] in done["msg"]


def test_a_failure_tells_its_last_words(lab_command: ModuleType) -> None:
    over_ssh = lab_command.outcome(
        1, "dasklab_link: no peer 'x'\r\n", "Shared connection to 10.77.0.13 closed.\n"
    )
    assert (over_ssh["failed"], over_ssh["msg"]) == (True, "dasklab_link: no peer 'x'")
    trace = lab_command.outcome(1, "Traceback:\n  deep\nValueError: sise\n", "")
    assert (trace["msg"], trace["said"]) == ("ValueError: sise", ["Traceback:", "deep"])
    assert lab_command.outcome(124, "", "")["msg"] == "exit status 124"


@pytest.mark.parametrize("stdout", ['{"schema": 1, "unsupported": "tc: no netem"}\n', "log\ntc: no netem\n"])
def test_what_a_machine_cannot_do_is_unsupported(lab_command: ModuleType, stdout: str) -> None:
    assert lab_command.outcome(3, stdout, "")["msg"] == "unsupported: tc: no netem"
