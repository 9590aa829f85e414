"""What tasks need not work out again: variables of the inventory that no task changes once they are known."""

from __future__ import annotations

from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template as expression

from tests.unit.roles.conftest import load

read_once = load("playbooks/callback_plugins/read_once.py")


def test_a_variable_may_need_those_before_it_and_what_cannot_be_told_yet_waits() -> None:
    given = {
        "lab_state_dir": expression("{{ '/x' }}"),
        "endpoint_facts": expression("{{ not_there.yet }}"),
        "guest": expression("{{ {'key': lab_state_dir} }}"),
        "ansible_host": "10.0.0.1",
        "ansible_ssh_common_args": expression("-o ProxyCommand={{ endpoint_facts.connect }}"),
        "ansible_ssh_private_key_file": expression("{{ lab_state_dir }}/key"),
        "rate": expression("{{ 1 }}"),
    }
    found = read_once._settled(given, DataLoader())
    assert found == {"lab_state_dir": "/x", "guest": {"key": "/x"}, "ansible_ssh_private_key_file": "/x/key"}
    assert read_once._settled({**given, **found}, DataLoader()) == {}
