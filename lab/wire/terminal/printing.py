"""How tables and the summary look on a terminal."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table as RichTable

from lab.wire.capture import Capture
from lab.wire.schema import Table
from lab.wire.tables.export import rows

PIPED_WIDTH = 400  # columns when stdout is no terminal: nothing is cut off for grep and less -S


def print_table(table: Table, title: str, first_ns: int, limit: int | None = None) -> None:
    """A table with aligned columns; times are shown in seconds since the first packet."""
    shown = RichTable(title=title, box=None, header_style="bold", title_justify="left", title_style="bold")
    for name, values in table.items():
        numeric = all(value is None or isinstance(value, int | float) for value in values)
        title = name.removesuffix("_ns") + "_s" if name.endswith("_ns") else name
        shown.add_column(title, justify="right" if numeric else "left", overflow="fold")
    for row in rows(table, limit):
        shown.add_row(*(_cell(name, value, first_ns) for name, value in row.items()))
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(shown)


def _cell(name: str, value: Any, first_ns: int) -> str:
    if value is None:
        return ""
    if name.endswith("_ns"):
        return f"{(value - first_ns) / 1e9:.6f}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int) and name.endswith("bytes"):
        return f"{value:,}"
    return str(value)


def print_summary(capture: Capture, said: dict[str, Any]) -> None:
    """The summary of ``lab.wire.tables.summary``."""
    for line in headlines(said):
        click.echo(line)
    for name in ("composition", "matrix"):
        click.echo()
        print_table(capture.table(name), name, capture.tally.first_ns)
    quantiles: Table = {"step": list(said["times_ms"])}
    for column in ("n", "p5", "p50", "p95", "p99"):
        quantiles[column] = [step[column] for step in said["times_ms"].values()]
    click.echo()
    print_table(quantiles, "times in ms", capture.tally.first_ns)


def headlines(said: dict[str, Any]) -> list[str]:
    """A few sentences: size, completeness, network."""
    whole, net = said["completeness"], said["network"]
    spoken = "".join(
        [said["generation"] or "no Dask found", *(f", distributed {v}" for v in said["distributed"])]
    )
    lines = [
        f"{said['packets']:,} packets, {said['wire_bytes'] / 1e6:,.1f} MB, {said['seconds']:.3f} s",
        f"{said['messages']:,} Dask messages ({spoken}) "
        f"in {said['dask_connections']} of {said['connections']} connections",
        f"complete: {_percent(whole['stream_seen'])} of stream bytes seen, "
        f"{_percent(whole['framed'])} framed, {_percent(whole['decoded'])} of messages decoded",
        f"network: {net['retransmitted']} retransmissions ({net['spurious']} needless), "
        f"{net['out_of_order']} out of order, {net['copies']} packets captured twice, "
        f"{net['zero_windows']} zero windows, {net['resets']} resets",
        f"         RTT from {_ms(net['rtt_min_ms'])}, handshake {_ms(net['handshake_median_ms'])} (median); "
        f"offloads {net['offload']}" + (": packets are super-packets" if net["offload"] == "on" else ""),
    ]
    if whole["lost_by_capture_bytes"]:
        lines.insert(3, f"LOST: {whole['lost_by_capture_bytes']:,} bytes were acknowledged but not captured")
    for protocol, number in said["covered_connections"].items():
        lines.append(f"{number} connections speak {protocol}: only their sizes and times are known")
    return lines


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.2f} %"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} ms"
