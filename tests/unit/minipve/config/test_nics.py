"""A VM's NIC option: parsing, rate, comparison."""

from __future__ import annotations

import pytest
from minipve.config import nics

NIC = "virtio=02:DA:00:00:00:01,bridge=vmbr1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NIC, nics.Nic("virtio", "02:DA:00:00:00:01", "vmbr1")),
        (
            "bridge=vmbr1,model=virtio,macaddr=02:da:00:00:00:01",
            nics.Nic("virtio", "02:DA:00:00:00:01", "vmbr1"),
        ),
        (f"{NIC},rate=0", nics.Nic("virtio", "02:DA:00:00:00:01", "vmbr1")),
        (
            f"{NIC},link_down=1,rate=0.125,mtu=9000,queues=2",
            nics.Nic("virtio", "02:DA:00:00:00:01", "vmbr1", 0.125, True, 9000, 2),
        ),
    ],
)
def test_nic_is_parsed(text: str, expected: nics.Nic) -> None:
    assert nics.parse(text) == expected


@pytest.mark.parametrize(
    ("rate", "rate_bytes"), [("1", 1048576), ("0.125", 131072), ("119.2", 124990259), ("0", None)]
)
def test_rate_is_in_mebibytes(rate: str, rate_bytes: int | None) -> None:
    assert nics.parse(f"{NIC},rate={rate}").rate_bytes == rate_bytes


@pytest.mark.parametrize(
    ("other", "needs_device"),
    [
        (f"{NIC},rate=1", False),
        (f"{NIC},link_down=1", False),
        (NIC.replace("vmbr1", "vmbr2"), False),
        (NIC.replace("virtio", "e1000"), True),
        (NIC.replace(":01", ":02"), True),
        (NIC.partition(",")[0], True),
        (f"{NIC},mtu=1400", True),
    ],
)
def test_change_that_needs_a_new_device(other: str, needs_device: bool) -> None:
    assert nics.needs_new_device(nics.parse(NIC), nics.parse(other)) is needs_device


@pytest.mark.parametrize(
    ("old", "new", "needs_device"),
    [
        (
            "virtio=02:00:00:00:00:01,bridge=a",
            "virtio=02:00:00:00:00:01,bridge=b,rate=1,link_down=1,tag=3",
            False,
        ),
        ("virtio=02:00:00:00:00:0a,bridge=a", "virtio=02:00:00:00:00:0A,bridge=a", False),
        ("virtio=02:00:00:00:00:01,bridge=a", "e1000=02:00:00:00:00:01,bridge=a", True),
        ("virtio=02:00:00:00:00:01,bridge=a", "virtio=02:00:00:00:00:02,bridge=a", True),
        ("virtio=02:00:00:00:00:01,bridge=a", "virtio=02:00:00:00:00:01", True),
        ("virtio=02:00:00:00:00:01,bridge=a", "virtio=02:00:00:00:00:01,bridge=a,queues=2", True),
    ],
)
def test_change_of_two_nics_that_needs_a_new_device(old: str, new: str, needs_device: bool) -> None:
    assert nics.needs_new_device(nics.parse(old), nics.parse(new)) is needs_device
