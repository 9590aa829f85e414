"""The address to listen on."""

from __future__ import annotations

import socket

import pytest
from minipve.base.errors import UserError
from minipve.endpoint.setup import Address, local_host, url


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
def test_loopback_addresses_need_no_permission(host: str) -> None:
    assert Address.parse(host, None, allow_remote=False) == Address(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "localhost", ""])
def test_other_addresses_are_refused(host: str) -> None:
    with pytest.raises(UserError):
        Address.parse(host, None, allow_remote=False)


def test_remote_address_needs_permission() -> None:
    assert Address.parse("0.0.0.0", 8006, allow_remote=True) == Address("0.0.0.0", 8006)


def test_options_parse_to_the_same_address() -> None:
    assert Address("::1", 8006).options() == ["--listen", "::1", "--allow-remote", "--port", "8006"]


def test_chosen_port_must_be_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1 port {port}"):
            Address("127.0.0.1", port).bind(previous_port=0)
        with Address().bind(previous_port=port) as listener:
            assert listener.getsockname()[1] not in (0, port)


def test_clients_on_this_machine_reach_a_wildcard_address_by_loopback() -> None:
    with Address("0.0.0.0").bind(previous_port=0) as listener:
        assert local_host(listener) == "127.0.0.1"


def test_url_has_brackets_around_ipv6() -> None:
    assert (url("127.0.0.1", 8006), url("::1", 8006)) == ("https://127.0.0.1:8006", "https://[::1]:8006")
