"""What the screen says of failures: each cause once, in the words that help, with its hosts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.unit.roles.conftest import load


@pytest.fixture(scope="module")
def screen() -> ModuleType:
    return load("playbooks/callback_plugins/dasklab.py")


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        ({"msg": "the cable is out\n"}, ["the cable is out"]),
        ({"msg": "non-zero return code", "stderr": "tc: no\n", "stdout": "[]"}, ["tc: no"]),
        # over ssh, on a terminal, all is stdout
        (
            {
                "msg": "non-zero return code",
                "stderr": "Shared connection to h closed.\n",
                "stdout": "tc: no\n",
            },
            ["tc: no"],
        ),
        (
            {"msg": "ValueError: sise", "said": ["Traceback:", "deep"]},
            ["ValueError: sise", "Traceback:", "deep"],
        ),
        ({"msg": "twice", "stderr": "twice\n\n"}, ["twice"]),
        ({}, ["no reason given"]),
    ],
)
def test_a_reason_is_in_the_words_of_the_module_or_its_command(
    screen: ModuleType, result: dict[str, Any], lines: list[str]
) -> None:
    assert screen.reason(result) == lines


def test_one_cause_on_two_hosts_is_alike_but_for_names_and_addresses(screen: ModuleType) -> None:
    text = "{0}: no answer in 300 s: ssh: connect to host {1} port 22: No route to host"
    one, two = (text.format(f"worker-{n}", f"10.77.0.{n}") for n in (1, 12))
    assert screen.alike("worker-1", [one]) == screen.alike("worker-12", [two])
    assert screen.alike("worker-1", ["exit status 3"]) != screen.alike("worker-1", ["exit status 4"])
    assert screen.alike("worker-1", ["exit status 126"]) != screen.alike("worker-1", ["exit status 127"])


@pytest.mark.parametrize(
    "text",
    [
        "VM 9101 is locked (backup)",
        "volume 'local:9101/vm-9101-disk-0.qcow2' does not exist",
        "can't lock file '/var/lock/qemu-server/lock-9101.conf' - got timeout",
        "UPID:pve:00001234:0000ABCD:66AABBCC:qmstart:9101:lab@pve!t: failed",
        "no space left on /mnt/9101/x, tap9101i0 is down",
    ],
)
def test_one_cause_with_a_vmid_or_a_path_in_its_text_is_alike(screen: ModuleType, text: str) -> None:
    assert screen.alike("worker-1", [text]) == screen.alike("worker-2", [text.replace("9101", "9102")])


def test_hosts_are_named_in_their_order_and_of_many_the_first(screen: ModuleType) -> None:
    assert screen.Failure([], ["worker-10", "worker-9", "client"]).where() == "client, worker-9, worker-10"
    many = screen.Failure([], [f"worker-{n}" for n in range(1, 201)]).where()
    assert many.startswith("worker-1, worker-2, ")
    assert many.endswith(", worker-8 and 192 more")


def test_what_a_rescue_says_again_is_no_news(screen: ModuleType) -> None:
    known = ["tc: no netem", "its disk is full"]
    assert screen.repeats("worker-1: Impair the lab link: tc: no netem", known)
    assert screen.repeats("unsupported: tc: no netem", known)
    assert not screen.repeats("tc: no netem here", known)
    assert not screen.repeats("no netem", known)
