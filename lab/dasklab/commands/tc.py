"""``dasklab tc``: impair the link of one host by hand, outside of any experiment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dasklab.console.completion import complete_hosts
from dasklab.console.lab.guest_program import call
from dasklab.console.lab.locking import locked
from dasklab.console.lab.target import open_target
from dasklab.console.options import inventory_option
from dasklab.console.quantity import TIME_TO_LIVE, amount_of
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.variables import open_lab
from dasklab.model.settings.impairments import DIRECTIONS, IMPAIRMENTS
from dasklab.terminal import duration, echo

Command = TypeVar("Command", bound=Callable[..., Any])
RESET = "reset"


def impairment_options(command: Command) -> Command:
    """Add an option for each row of the registry: ``--delay``, ``--rate``."""
    for impairment in reversed(IMPAIRMENTS):
        name, type_ = impairment.key.rpartition("_")[0], amount_of(impairment)
        text = f"{impairment.title.capitalize()}, such as {type_.example}."
        command = click.option(f"--{name}", impairment.key, type=type_, help=text)(command)
    return command


@click.command()
@click.argument("host", shell_complete=complete_hosts)
@click.argument("action", metavar=f"[{RESET}]", required=False, type=click.Choice([RESET]))
@impairment_options
@click.option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    default="egress",
    help="What HOST sends (default), receives, or both.",
)
@click.option(
    "--peer", metavar="HOST", shell_complete=complete_hosts, help="Only frames to or from this host."
)
@click.option(
    "--for",
    "ttl_s",
    type=TIME_TO_LIVE,
    default=600.0,
    show_default="10min",
    help="Time after which HOST clears its link itself.",
)
@click.option("--json", "as_json", is_flag=True, help="Print HOST's answer as JSON.")
@inventory_option
def tc(
    host: str,
    action: str | None,
    direction: str,
    peer: str | None,
    ttl_s: float,
    as_json: bool,
    inventory: Path,
    **amounts: float | None,
) -> None:
    """Impair the link under test of HOST, show how it is impaired, or clear it.

    What was set before is replaced. The next trial of an experiment replaces it, too.

    \b
    dasklab tc worker-1                              show
    dasklab tc worker-1 --delay 10ms --rate 50mbit   impair
    dasklab tc worker-1 reset                        clear, whoever impaired it
    """
    requested = {key: value for key, value in amounts.items() if value}
    if requested and action == RESET:
        raise click.UsageError(f"`{RESET}` clears the link and takes no amounts")
    if not requested and any(value is not None for value in amounts.values()):
        raise click.UsageError(
            f"an amount of 0 is no impairment; to clear the link: dasklab tc {host} {RESET}"
        )
    if not requested and action is None:
        lab = open_lab(inventory)
        presence.require_machines(lab, host)
        answer = call(lab, host, "link", "show")
    else:
        lab = open_target(inventory)
        presence.require_machines(lab, host)
        link = {**requested, "direction": direction, "peer": peer}
        with locked(lab, reset=False):
            answer = (
                call(lab, host, "link", "clear", foreign=True)
                if action == RESET
                else call(lab, host, "link", "apply", links=[link], ttl_s=ttl_s)
            )
    echo(json.dumps(answer) if as_json else _sentence(host, answer))


def _sentence(host: str, answer: dict[str, Any]) -> str:
    """Return what the kernel of a host reports, what a reset changed, and how to undo it."""
    from dasklab.report.words.levels import describe_links

    links = [
        (host, {**link, "direction": "ingress" if link["direction"] == "ingress" else ""})
        for link in answer["configured"]
    ]
    left_s = answer["expires_in_s"]
    state = describe_links(links) if links else f"{host}: no impairment on {answer['interface']}"
    state += f", for another {duration(left_s)}" if links and left_s else ""
    state = "; ".join([state, *answer["differences"], *answer.get("mended", [])])
    return (
        f"{state}. To clear it: dasklab tc {host} {RESET}" if links or answer["differences"] else f"{state}."
    )
