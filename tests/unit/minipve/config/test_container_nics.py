"""A container's NIC option: parsing, rate, canonical form."""

from __future__ import annotations

import pytest
from minipve.config import container_nics

NET = "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:00:00:12,ip=10.77.0.11/24,gw=10.77.0.1,rate=12.5"


def test_nic_option_is_canonical() -> None:
    stored = container_nics.canonical(
        "rate=12.5,ip=10.77.0.11/24,bridge=vmbr1,hwaddr=02:da:5c:00:00:12,name=eth1,mtu=1500"
    )
    assert stored == (
        "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:00:00:12,ip=10.77.0.11/24,mtu=1500,rate=12.5,type=veth"
    )
    assert container_nics.canonical("name=eth0").startswith("name=eth0,hwaddr=BC:24:11:")
    assert container_nics.with_new_mac(stored).partition("hwaddr=")[2][:8] == "BC:24:11"


@pytest.mark.parametrize(
    ("rate", "bytes_s"), [("1", 1048576), ("12.5", 13107200), ("0.03", 31457), ("0", None), ("-1", None)]
)
def test_rate_of_a_container_nic_is_in_mebibytes(rate: str, bytes_s: int | None) -> None:
    """Proxmox VE sets 8388 kbit/s for 1, 104857 kbit/s for 12.5, 251656 bit/s for 0.03, none for 0 and -1."""
    assert container_nics.parse(f"name=eth0,bridge=vmbr0,rate={rate}").rate_bytes == bytes_s


def test_nics_are_sorted_by_number() -> None:
    config = {f"net{n}": f"name=eth{n}" for n in (10, 2, 0)}
    assert list(container_nics.of_config(config)) == [0, 2, 10]
