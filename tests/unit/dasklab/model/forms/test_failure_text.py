"""Which messages of several hosts have the same reason."""

from __future__ import annotations

import pytest
from dasklab.model.forms.failure_text import common_text


@pytest.mark.parametrize(
    "text",
    [
        "{host}: no answer in 300 s: ssh: connect to host 10.77.0.{n} port 22: No route to host",
        "VM 91{n} is locked (backup)",
        "volume 'local:91{n}/vm-91{n}-disk-0.qcow2' does not exist",
        "can't lock file '/var/lock/qemu-server/lock-91{n}.conf' - got timeout",
        "UPID:pve:00001234:0000ABCD:66AABBCC:qmstart:91{n}:lab@pve!t: failed",
        "no space left on /mnt/91{n}/x, tap91{n}i0 is down",
        "no link on 02:DA:5C:23:8F:{n}",
        "ended at 2026-01-01 10:00:{n}, pid {n}",
    ],
)
def test_what_differs_between_hosts_does_not_make_a_reason_different(text: str) -> None:
    one, two = ((f"worker-{n}", text.format(host=f"worker-{n}", n=n)) for n in (10, 42))
    assert one[1] != two[1]
    assert common_text(one[1], [one[0]]) == common_text(two[1], [two[0]])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("exit status 3", "exit status 4"),
        ("exit status 126", "exit status 127"),
        ("worker-1 is down", "worker-12 is down"),
    ],
)
def test_other_reasons_stay_different(one: str, two: str) -> None:
    assert common_text(one, ["worker-1"]) != common_text(two, ["worker-1"])


def test_numbers_are_found_inside_of_words_and_names_are_not() -> None:
    """A VMID is part of a device's name; ``client`` is not part of ``clients``."""
    assert common_text("mp9101s down", ["9101"]) == common_text("mp9102s down", ["9102"])
    assert common_text("9 clients", ["client"]) == "9 clients"
