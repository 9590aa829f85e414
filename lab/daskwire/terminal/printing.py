"""How tables and the summary look: drawn on a terminal; in a pipe plain columns of which nothing is cut."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from rich.cells import cell_len
from rich.table import Table as RichTable

from daskwire.capture import Capture
from daskwire.schema import Table
from daskwire.tables.export import rows
from daskwire.terminal.text import cell, draw, on_terminal, plain, say

WORKERS_CLOCK = {"start_s", "stop_s"}  # seconds since 1970
COSTLY = 0.02  # share of messages or of bytes
SINCE_1970 = {*WORKERS_CLOCK, "second"}


def print_table(table: Table, title: str, zero_ns: int, limit: int | None = None) -> None:
    """A table with aligned columns. All times, whosever clock they are of, are seconds since ``zero_ns``."""
    head = [_head(name) for name in table]
    left = [not all(v is None or isinstance(v, int | float) for v in values) for values in table.values()]
    body = [[_cell(name, value, zero_ns) for name, value in row.items()] for row in rows(table, limit)]
    if on_terminal():
        _draw(_title(title, table, zero_ns), head, left, body)
    else:
        _columns(_title(title, table, zero_ns), head, left, body)


def _title(title: str, table: Table, zero_ns: int) -> str:
    """The name of the table and, where it shows times, what they count from."""
    if not any(name.endswith("_ns") or name in SINCE_1970 for name in table):
        return title
    zero = datetime.fromtimestamp(zero_ns // 1_000_000_000, timezone.utc).replace(tzinfo=None)
    clocks = "; start_s, stop_s: the workers' clocks" if WORKERS_CLOCK & set(table) else ""
    return f"{title} (0 s is {zero}.{zero_ns % 1_000_000_000:09} UTC{clocks})"


def _draw(title: str, head: list[str], left: list[bool], body: list[list[str]]) -> None:
    shown = RichTable(
        title=cell(title), box=None, header_style="bold", title_justify="left", title_style="bold"
    )
    for name, is_left in zip(head, left, strict=True):
        shown.add_column(cell(name), justify="left" if is_left else "right", overflow="fold")
    for row in body:
        shown.add_row(*map(cell, row))
    draw(shown)


def _columns(title: str, head: list[str], left: list[bool], body: list[list[str]]) -> None:
    lines = [head, *([plain(text) for text in row] for row in body)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    say(title)
    for line in lines:
        padded = [
            text + " " * (width - cell_len(text)) if is_left else " " * (width - cell_len(text)) + text
            for text, width, is_left in zip(line, widths, left, strict=True)
        ]
        say("  ".join(padded).rstrip())


def _head(name: str) -> str:
    return name.removesuffix("_ns") + "_s" if name.endswith("_ns") else name


def _cell(name: str, value: Any, zero_ns: int) -> str:
    if value is None:
        return ""
    if name.endswith("_ns"):
        return f"{(value - zero_ns) / 1e9:.6f}"
    if name in SINCE_1970:
        return f"{value - zero_ns / 1e9:.6f}" if isinstance(value, float) else f"{value - zero_ns / 1e9:.3f}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int) and name.endswith("bytes"):
        return f"{value:,}"
    return str(value)


def print_summary(capture: Capture, said: dict[str, Any]) -> None:
    """The summary of ``daskwire.tables.summary``."""
    for line in headlines(said):
        say(line)
    for name in ("composition", "matrix"):
        say()
        print_table(capture.table(name), name, capture.tally.begin_ns)
    quantiles: Table = {"step": list(said["times_ms"])}
    for column in ("n", "p5", "p50", "p95", "p99"):
        quantiles[column] = [step[column] for step in said["times_ms"].values()]
    say()
    print_table(quantiles, "times in ms", capture.tally.begin_ns)


def headlines(said: dict[str, Any]) -> list[str]:
    """A few sentences: size, completeness, network, and what stands in the way of understanding."""
    whole, net = said["completeness"], said["network"]
    spoken = "".join(
        [said["generation"] or "no Dask found", *(f", distributed {v}" for v in said["distributed"])]
    )
    lines = [
        f"{said['packets']:,} packets, {said['wire_bytes'] / 1e6:,.1f} MB, {said['seconds']:.3f} s",
        f"{said['messages']:,} Dask messages ({spoken}) "
        f"in {said['dask_connections']} of {said['connections']} connections",
        *_completeness(said),
        f"network: {net['retransmitted']} retransmissions ({net['spurious']} needless), "
        f"{net['out_of_order']} out of order, {net['copies']} packets captured twice, "
        f"{net['zero_windows']} zero windows, {net['resets']} connections reset",
        f"         RTT from {_ms(net['rtt_min_ms'])}, handshake {_ms(net['handshake_median_ms'])} (median); "
        f"offloads {net['offload']}" + (": packets are super-packets" if net["offload"] == "on" else ""),
    ]
    at = len(lines) - 2
    if _costly(cut := said["snaplen"], said):
        lines.insert(
            at, f"SNAPLEN TOO SMALL: {cut['packets']:,} packets were cut after {cut['kept_bytes']:,} bytes, "
            f"{cut['messages']:,} messages lost what they say; record with tcpdump -s 0, or at least -s 1024",
        )  # fmt: skip
    if whole["lost_by_capture_bytes"]:
        lines.insert(at, f"LOST: {whole['lost_by_capture_bytes']:,} bytes were acknowledged but not captured")
    lines += [
        f"{number:,} packets came in {name} and were looked into" for name, number in said["tunnels"].items()
    ]
    for name, number in said["likely_tunnels"].items():
        lines.append(f"{number:,} packets were not looked into: {name}, which may be a tunnel")
    if number := said["translated_connections"]:
        lines.append(f"TWICE: {number} connections were captured on both sides of a NAT, counts include both")
    if skipped := said["skipped_packets"]:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in skipped.items())
        lines.append(f"{sum(skipped.values()):,} packets were not looked into: {reasons}")
    if len(said["clusters"]) > 1:
        lines.append(f"{len(said['clusters'])} clusters, by their schedulers: {', '.join(said['clusters'])}")
    for protocol, number in said["covered_connections"].items():
        lines.append(f"{number} connections speak {protocol}: only their sizes and times are known")
    return lines


def _completeness(said: dict[str, Any]) -> list[str]:
    """Of bytes, of messages and of connections: none of them alone says that a capture is complete."""
    whole, connections = said["completeness"], said["dask_connections"]
    messages, missing = said["messages"], whole["messages_missing"]
    ends = [f"{name} of {connections:,} Dask connections {what}" for name, what in (
        (f"{whole['began_before']:,}", "began before the capture"),
        (f"{whole['open_at_end']:,}", "were open when it ended"),
    ) if name != "0"]  # fmt: skip
    if whole["unrecognised"]:
        ends.append(f"{whole['unrecognised']:,} others began before the capture and were not recognised")
    ends += [f"{file['path']} is {file['problem']}" for file in said["files"] if file["problem"]]
    show = _of_a_part if ends else _percent
    shares = (
        f"{messages:,} of {'about ' if missing else ''}{messages + missing:,} messages seen "
        f"({show(whole['messages_seen'])}), {show(whole['stream_seen'])} of stream bytes seen, "
        f"{show(whole['framed'])} framed, {show(whole['decoded'])} of messages decoded"
    )
    if not messages:
        return ["nothing of Dask was found", *(f"incomplete: {end}" for end in ends)]
    if ends:
        return [f"incomplete: {'; '.join(ends)}", f"            while it ran: {shares}"]
    return [f"{'complete' if said['complete'] else 'incomplete'}: {shares}"]


def _costly(cut: dict[str, int], said: dict[str, Any]) -> bool:
    """Whether a snaplen cost more than the few large bodies that one may do without."""
    if not cut:
        return False
    framed = said["completeness"]["framed"]
    return cut["messages"] > COSTLY * said["messages"] or framed is None or framed < 1 - COSTLY


def _percent(share: float | None) -> str:
    """100.00 % is all of it: what is nearly all is not rounded up."""
    return "-" if share is None else f"{int(share * 10_000) / 100 if share < 1 else 100:.2f} %"


def _of_a_part(share: float | None) -> str:
    """All of what passed while a capture ran is not 100 % of what was said."""
    return "all" if share == 1 else _percent(share)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} ms"
