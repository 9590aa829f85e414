"""What ``dasklab tc`` sends is what the guest program takes."""

from __future__ import annotations

import inspect

from click.testing import CliRunner
from dasklab.cli import main
from dasklab.model.settings.impairments import IMPAIRMENTS
from dasklab_guest import link, tc

from tests.unit.dasklab.commands.fake_ssh import FakeSsh, host

__all__ = ["host"]
ADDRESSES = {"worker-1": "192.0.2.13", "worker-2": "192.0.2.14"}


def test_the_guest_program_takes_what_is_sent(host: FakeSsh) -> None:
    words = [word for row in IMPAIRMENTS for word in (f"--{row.key.rpartition('_')[0]}", "5")]
    sent = CliRunner().invoke(main, ["tc", "worker-1", *words, "--direction", "both", "--peer", "worker-2"])
    assert sent.exit_code == 0, sent.output
    [(name, arguments)] = host.steps
    assert name in {f"link.{step}" for step in link.STEPS}
    inspect.signature(link.STEPS[name.removeprefix("link.")]).bind(**arguments)
    [complete] = tc.complete_links(arguments["links"], ADDRESSES)
    amounts = dict.fromkeys((row.key for row in IMPAIRMENTS), 5)
    assert complete == {**amounts, "direction": "both", "peer": "worker-2", "policer": False}
