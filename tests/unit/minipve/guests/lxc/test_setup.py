"""The files that the node writes into a container."""

from __future__ import annotations

from minipve.guests.lxc import setup

NET = "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:00:00:12,ip=10.77.0.11/24,gw=10.77.0.1,rate=12.5"


def test_interfaces_file_of_a_container() -> None:
    text = setup.interfaces({"net0": "name=eth0,ip=dhcp", "net1": NET, "net2": "name=eth2"})
    assert text == (
        "auto lo\niface lo inet loopback\n\n"
        "auto eth0\niface eth0 inet dhcp\n\n"
        "auto eth1\niface eth1 inet static\n\taddress 10.77.0.11/24\n\tgateway 10.77.0.1\n\n"
        "auto eth2\niface eth2 inet manual\n"
    )


def test_hosts_file_keeps_other_lines() -> None:
    options = {"hostname": "client", "searchdomain": "lab.example", "net1": NET}
    once = setup.hosts("127.0.0.1 localhost\n10.0.0.9 mine\n", options)
    assert once == (
        "127.0.0.1 localhost\n10.0.0.9 mine\n"
        "# --- BEGIN PVE ---\n10.77.0.11 client.lab.example client\n# --- END PVE ---\n"
    )
    assert setup.hosts(once, options) == once
    assert "127.0.1.1 b\n" in setup.hosts("", {"hostname": "b"})


def test_resolv_conf() -> None:
    options = {"searchdomain": "lab.example", "nameserver": "10.0.0.1 10.0.0.2"}
    assert setup.resolv_conf(options) == "search lab.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2"
