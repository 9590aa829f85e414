"""``dasklab top``: what all hosts and their links do, live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.console.lab import guest_program
from dasklab.console.options import inventory_option
from dasklab.console.quantity import TIME_TO_LIVE
from dasklab.errors import LabError
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.variables import open_lab
from dasklab.machines.live import Rates, Watched, watch
from dasklab.model.forms.number_format import format_quantity
from dasklab.terminal import console, echo, make_table

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("host", "CPU", "memory", "sends", "receives", "retransmits", "drops", "impairment")
RIGHT = HEADS[1:7]


@click.command()
@click.option(
    "--every",
    "interval_s",
    type=TIME_TO_LIVE,
    default=2.0,
    show_default="2s",
    help="Time between two samples.",
)
@click.option("--samples", type=click.IntRange(min=1), help="End after so many. Default: at Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per sample.")
@inventory_option
def top(interval_s: float, samples: int | None, as_json: bool, inventory: Path) -> None:
    """Show CPU, memory, rates, retransmissions and impairments of all hosts, live.

    A host needs less than 1 ms of CPU time per sample, so a measurement may run meanwhile.

    \b
    dasklab top                              until Ctrl-C
    dasklab top --every 5s
    dasklab top --samples 1 --json | jq
    """
    lab = open_lab(inventory)
    presence.require_machines(lab)
    hosts = lab.hosts("lab")
    with watch(lab, hosts, guest_program.PROGRAM, interval_s) as watched:
        try:
            ticks = _ticks(watched, interval_s, samples)
            _print_json(watched, ticks) if as_json else _show(watched, ticks)
        except KeyboardInterrupt:
            return


def _ticks(watched: Watched, interval_s: float, samples: int | None) -> Iterator[None]:
    """Yield once per interval, the first time when every host has rates or a problem.

    Raises:
        LabError: no host answers.
    """
    while any(rates is None and host not in watched.problems for host, rates in watched.rates.items()):
        time.sleep(0.05)
    number = 0
    while True:
        if len(watched.problems) == len(watched.rates):
            first = next(iter(watched.rates))
            raise LabError(f"no host answers any more; {first}: {watched.problems[first]}")
        yield
        number += 1
        if number == samples:
            return
        time.sleep(interval_s)


def _print_json(watched: Watched, ticks: Iterator[None]) -> None:
    for _ in ticks:
        hosts = {host: asdict(rates) if rates else None for host, rates in watched.rates.items()}
        echo(json.dumps({"time": time.time(), "hosts": hosts, "problems": watched.problems}))


def _show(watched: Watched, ticks: Iterator[None]) -> None:
    """Show a table: a terminal replaces it, elsewhere it is printed again."""
    from rich.live import Live

    screen = console(sys.stdout)
    if not screen.is_terminal:
        for _ in ticks:
            screen.print(_table(watched))
        return
    with Live(console=screen, auto_refresh=False) as live:
        for _ in ticks:
            live.update(_table(watched), refresh=True)


def _table(watched: Watched) -> Table:
    return make_table(HEADS, (_row(watched, host) for host in watched.rates), right=RIGHT)


def _row(watched: Watched, host: str) -> list[str]:
    rates, problem = watched.rates[host], watched.problems.get(host)
    if rates and not problem:
        return [host, *_cells(rates)]
    return [host, *[""] * len(RIGHT), f"no answer: {problem}" if problem else ""]


def _cells(rates: Rates) -> list[str]:
    from dasklab.report.words.levels import describe_link

    return [
        f"{rates.cpu:.0%}",
        f"{rates.memory:.0%}",
        format_quantity(rates.sent_mbit, "Mbit/s"),
        format_quantity(rates.received_mbit, "Mbit/s"),
        f"{rates.retransmitted:.0f}/s" if rates.retransmitted else "",
        f"{rates.dropped:.0f}/s" if rates.dropped else "",
        "; ".join(map(describe_link, rates.links)),
    ]
