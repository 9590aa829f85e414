"""Print tables and the summary: drawn on a terminal, as plain columns without truncation in a pipe."""

from __future__ import annotations

import io
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.table import Table as RichTable
from rich.text import Text

from daskwire.analysis.problems.detect import Answer, Verdict, judge
from daskwire.analysis.problems.finding import counted
from daskwire.analysis.tables.export import rows
from daskwire.analysis.tables.messages import slowest
from daskwire.base.printable import plain
from daskwire.base.schema import Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.file import tcpdump

# The only output channel of the command: it makes untrusted text from captures harmless.
#
# A task key, an op or a worker's name may contain terminal escapes, markup of the library that draws
# tables, or
# characters that change the writing direction. Each such character is replaced by its Python escape, and
# markup is never interpreted. A test ensures that no other module of this package writes output.


def escape_what_the_console_lacks() -> None:
    """Print an escape such as ``\\u2192`` for a character that the console's encoding lacks, never fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def cell(text: object) -> Text:
    """Return literal text for a table that is drawn on a terminal."""
    return Text(plain(text))


def write_line(line: object = "", err: bool = False) -> None:
    click.echo(plain(line), err=err)


def write_text(text: object, start: str = "", indent: str = "") -> None:
    """Write a line. On a terminal it is wrapped between words, and what follows is indented."""
    line = start + plain(text)
    if on_terminal():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    click.echo(line)


def write_json(value: Any) -> None:
    """Write JSON in ASCII. DEL is escaped here because the JSON encoder does not escape it."""
    click.echo(json.dumps(value).replace("\x7f", "\\u007f"))


def draw(table: RenderableType) -> None:
    """Draw a table whose texts were made by ``cell``."""
    Console(markup=False, highlight=False, emoji=False).print(table)


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def progress_bar(visible: bool) -> Progress:
    """Create a progress bar on stderr that disappears when it is finished."""
    return Progress(console=Console(stderr=True), disable=not visible, transient=True)


@contextmanager
def screen(visible: bool) -> Iterator[Callable[[RenderableType], None] | None]:
    """Yield a function that redraws the screen; None if the screen is not visible."""
    if not visible:
        yield None
        return
    with Live(console=Console(markup=False, highlight=False, emoji=False), auto_refresh=False) as display:
        yield lambda content: display.update(content, refresh=True)


# Print tables and the summary: drawn on a terminal, as plain columns without truncation in a pipe.

WORKERS_CLOCK = {"start_s", "stop_s"}  # columns in seconds since 1970
SINCE_1970 = {*WORKERS_CLOCK, "second"}
MAX_HOSTS = 12  # nodes that the summary lists
LARGEST = 10  # rows of a table that the summary lists
SLOWEST = 5  # transfers that the summary lists
SUMMARY_COLUMNS = {
    "composition": ("source", "op", "ops", "messages", "bytes"),
    "matrix": ("source", "destination", "packets", "messages", "payload_bytes"),
}
SLOWEST_COLUMNS = ("source", "destination", "request_ns", "keys", "bytes", "serve_ms", "wire_ms", "mb_s")
INDENT = "   "
COSTLY = 0.02  # share of messages or bytes


def print_table(table: Table, title: str, zero_ns: int, limit: int | None = None) -> None:
    """Print a table with aligned columns. All times, of any clock, are seconds since ``zero_ns``."""
    head = [_head(name) for name in table]
    left = [not all(v is None or isinstance(v, int | float) for v in values) for values in table.values()]
    body = [[_cell(name, value, zero_ns) for name, value in row.items()] for row in rows(table, limit)]
    if on_terminal():
        _draw(_title(title, table, zero_ns), head, left, body)
    else:
        _columns(_title(title, table, zero_ns), head, left, body)


def _title(title: str, table: Table, zero_ns: int) -> str:
    """Format the name of the table and, if it contains times, their zero."""
    if not any(name.endswith("_ns") or name in SINCE_1970 for name in table):
        return title
    zero = datetime.fromtimestamp(zero_ns // 1_000_000_000, timezone.utc).replace(tzinfo=None)
    clocks = "; start_s, stop_s: the workers' clocks" if WORKERS_CLOCK & set(table) else ""
    return f"{title} (0 s is {zero}.{zero_ns % 1_000_000_000:09} UTC{clocks})"


def _draw(title: str, head: list[str], left: list[bool], body: list[list[str]]) -> None:
    table = RichTable(
        title=cell(title), box=None, header_style="bold", title_justify="left", title_style="bold"
    )
    for name, is_left in zip(head, left, strict=True):
        table.add_column(cell(name), justify="left" if is_left else "right", overflow="fold")
    for row in body:
        table.add_row(*map(cell, row))
    draw(table)


def _columns(title: str, head: list[str], left: list[bool], body: list[list[str]]) -> None:
    lines = [head, *([plain(text) for text in row] for row in body)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    write_line(title)
    for line in lines:
        padded = [
            text + " " * (width - cell_len(text)) if is_left else " " * (width - cell_len(text)) + text
            for text, width, is_left in zip(line, widths, left, strict=True)
        ]
        write_line("  ".join(padded).rstrip())


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


def print_problems(table: Table, verdict: Verdict, zero_ns: int, limit: int | None) -> None:
    """Print problems with their evidence, then notes, one line each. Times are seconds since ``zero_ns``."""
    findings = rows(table, limit)
    problems = [row for row in findings if row["severity"] == "problem"]
    notes = [row for row in findings if row["severity"] == "note"]
    if verdict.answer == Answer.PROBLEMS:
        _print_details(problems, zero_ns)
    else:
        write_text(answer_line(verdict))
        for row in problems:
            write_text(f"{row['problem']}: {row['advice']}", INDENT, INDENT)
    if notes:
        write_line()
        write_line("notes (below the threshold, at start-up or shutdown, or consequences):")
    for row in notes:
        cost = f" ({row['cost_s']:.2f} s)" if row["cost_s"] else ""
        write_text(f"{row['problem']}{_where(row)}: {row['what']}{cost}", "-  ", INDENT)


def _print_details(problems: list[dict[str, Any]], zero_ns: int) -> None:
    for number, row in enumerate(problems, 1):
        write_line(f"{number}. {row['problem']}{_where(row)}")
        for line in (row["what"], _measure(row, zero_ns)):
            write_text(line, INDENT, INDENT)
        if row["filter"]:
            write_line(f"{INDENT}filter: {row['filter']}")  # whole, to be copied
        write_text(row["advice"], INDENT, INDENT)


def answer_line(verdict: Verdict) -> str:
    """Format an answer with what it rests on, or why there is none."""
    if verdict.answer == Answer.NOTHING_TO_JUDGE:
        return f"{verdict.answer.value}: {'; '.join(verdict.reasons)}"
    basis = verdict.basis
    shares = [
        f"{_share_of_part(share)} of {what}"
        for share, what in (
            (basis.stream_seen, "stream bytes seen"),
            (basis.dask_share, "TCP payload is Dask"),
        )
        if share is not None
    ]
    return (
        f"{verdict.answer.value} in {counted(basis.messages, 'Dask message')} of"
        f" {counted(basis.hosts, 'host')} in {basis.seconds:,.1f} s ({', '.join(shares)})"
    )


def _where(row: dict[str, Any]) -> str:
    if row["source"] and row["destination"]:
        return f": {row['source']} to {row['destination']}"
    return f": {row['source']}" if row["source"] else ""


def _measure(row: dict[str, Any], zero_ns: int) -> str:
    """Format when a problem was, what it cost, and how certain it is."""
    parts = []
    if row["begin_ns"] is not None:
        begin, end = ((row[name] - zero_ns) / 1e9 for name in ("begin_ns", "end_ns"))
        parts.append(f"from {begin:.3f} to {end:.3f} s ({end - begin:.1f} s)")
    if row["cost_s"]:
        parts.append(f"cost {row['cost_s']:,.1f} s of waiting")
    return ", ".join([*parts, f"certainty {row['certainty_pct']} %"])


def print_summary(capture: Capture, summary: dict[str, Any]) -> None:
    """Print a summary (see ``daskwire.summarise``): hosts, problems, traffic, slowest transfers, times."""
    for line in [*headlines(summary), *_hosts(capture), *_answer(capture)]:
        write_text(line)
    for name, table_columns in SUMMARY_COLUMNS.items():
        write_line()
        _print_largest(capture, name, table_columns)
    transfers = slowest(capture, SLOWEST)
    if transfers["source"]:
        write_line()
        columns = {name: transfers[name] for name in SLOWEST_COLUMNS}
        print_table(columns, "slowest transfers", capture.tally.begin_ns)
    quantiles: Table = {"step": list(summary["times_ms"])}
    for column in ("n", "p5", "p50", "p95", "p99"):
        quantiles[column] = [step[column] for step in summary["times_ms"].values()]
    write_line()
    print_table(quantiles, "times in ms", capture.tally.begin_ns)


def _print_largest(capture: Capture, name: str, columns: tuple[str, ...]) -> None:
    """Print the rows of a table with the most in its last column."""
    table = capture.table(name)
    measure = table[columns[-1]]
    order = sorted(range(len(measure)), key=lambda row: -measure[row])
    part = f", the {LARGEST} largest of {len(order):,} (all: daskwire {name})" if len(order) > LARGEST else ""
    if len(capture.scheduler_names) > 1:
        columns = ("cluster", *columns)
    largest = {column: [table[column][row] for row in order[:LARGEST]] for column in columns}
    print_table(largest, name + part, capture.tally.begin_ns)


def _hosts(capture: Capture) -> list[str]:
    """Format the nodes of the clusters with their addresses."""
    names: dict[str, None] = {}
    for row in rows(capture.table("nodes")):
        names.setdefault(f"{row['node']} {row['source'] or row['announced']}")
    more = [f"and {len(names) - MAX_HOSTS:,} more"] if len(names) > MAX_HOSTS else []
    return [f"nodes: {', '.join([*list(names)[:MAX_HOSTS], *more])}"] if names else []


def _answer(capture: Capture) -> list[str]:
    """Format the answer of ``daskwire problems`` in one line."""
    verdict = judge(capture)
    if verdict.answer != Answer.PROBLEMS:
        return [answer_line(verdict)]
    problems = [row for row in rows(capture.table("problems")) if row["severity"] == "problem"]
    first = problems[0]
    more = f", and {counted(len(problems) - 1, 'other problem')}" if len(problems) > 1 else ""
    return [f"problems: {first['problem']}{_where(first)}{more} ('daskwire problems' has the evidence)"]


def headlines(summary: dict[str, Any]) -> list[str]:
    """Format size, completeness, network figures, and everything that could not be decoded."""
    whole, net = summary["completeness"], summary["network"]
    dask = "".join(
        [summary["generation"] or "no Dask found", *(f", distributed {v}" for v in summary["distributed"])]
    )
    lines = [
        f"{summary['packets']:,} packets, {summary['wire_bytes'] / 1e6:,.1f} MB, {summary['seconds']:.3f} s",
        f"{summary['messages']:,} Dask messages ({dask}) "
        f"in {summary['dask_connections']} of {summary['connections']} connections",
        *_completeness(summary),
        f"network: {net['retransmitted']:,} retransmissions ({net['spurious']:,} spurious), "
        f"{net['out_of_order']:,} out of order, {net['copies']:,} packets captured twice, "
        f"{net['zero_windows']:,} zero windows, {net['resets']:,} connections reset",
        f"         RTT >= {_ms(net['rtt_min_ms'])}, handshake {_ms(net['handshake_median_ms'])} (median); "
        f"offloads {net['offload']}" + (": packets are super-packets" if net["offload"] == "on" else ""),
    ]
    at = len(lines) - 2
    if _costly(cut := summary["snaplen"], summary):
        lines.insert(
            at,
            f"SNAPLEN TOO SMALL: {cut['packets']:,} packets were truncated to {cut['kept_bytes']:,} bytes, "
            f"{cut['messages']:,} messages have no content; record with {_record(cut['kept_bytes'])}",
        )
    if whole["lost_by_capture_bytes"]:
        lines.insert(at, f"LOST: {whole['lost_by_capture_bytes']:,} bytes were acknowledged but not captured")
    lines += [f"{number:,} packets were decoded from {name}" for name, number in summary["tunnels"].items()]
    for name, number in summary["likely_tunnels"].items():
        lines.append(f"{number:,} packets were not decoded: {name}, which may be a tunnel")
    if number := summary["translated_connections"]:
        lines.append(f"{number:,} connections were captured on both sides of a NAT; each counts once")
    if number := summary["relayed_connections"]:
        lines.append(f"{number:,} connections were relayed; each counts once")
    if number := summary["repeated_packets"]:
        lines.append(f"{number:,} packets were captured at several points; each counts once")
    if skipped := summary["skipped_packets"]:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in skipped.items())
        lines.append(f"{sum(skipped.values()):,} packets were not decoded: {reasons}")
    if len(summary["clusters"]) > 1:
        lines.append(f"{len(summary['clusters'])} clusters, by scheduler: {', '.join(summary['clusters'])}")
    for protocol, number in summary["covered_connections"].items():
        lines.append(f"{number} connections use {protocol}: only their sizes and times are known")
    return lines


def _completeness(summary: dict[str, Any]) -> list[str]:
    """Format the completeness of bytes, messages and connections. Only together do they prove it."""
    whole, connections = summary["completeness"], summary["dask_connections"]
    messages, missing = summary["messages"], whole["messages_missing"]
    reasons = [f"{number:,} of {connections:,} Dask connections {state}" for number, state in (
        (whole["began_before"], "began before the capture"),
        (whole["open_at_end"], "were open when it ended"),
    ) if number]  # fmt: skip
    if whole["unrecognised"]:
        reasons.append(f"{whole['unrecognised']:,} others began before the capture and were not recognised")
    reasons += [f"{file['path']} is {file['problem']}" for file in summary["files"] if file["problem"]]
    show = _share_of_part if reasons else _percent
    shares = (
        f"{messages:,} of {'about ' if missing else ''}{messages + missing:,} messages seen "
        f"({show(whole['messages_seen'])}), {show(whole['stream_seen'])} of stream bytes seen, "
        f"{show(whole['framed'])} framed, {show(whole['decoded'])} of messages decoded"
    )
    if not messages:
        return ["no Dask messages found", *(f"incomplete: {reason}" for reason in reasons)]
    if reasons:
        return [f"incomplete: {'; '.join(reasons)}", f"            during the capture: {shares}"]
    return [f"{'complete' if summary['complete'] else 'incomplete'}: {shares}"]


def _record(kept_bytes: int) -> str:
    """Return the command that keeps more than a capture kept of its packets."""
    return tcpdump.RECORD if kept_bytes < tcpdump.SNAPLEN_BYTES else tcpdump.EVERYTHING


def _costly(cut: dict[str, int], summary: dict[str, Any]) -> bool:
    """Return whether a snaplen cost more than the content of a few large messages."""
    if not cut:
        return False
    framed = summary["completeness"]["framed"]
    return cut["messages"] > COSTLY * summary["messages"] or framed is None or framed < 1 - COSTLY


def _percent(share: float | None) -> str:
    """Format a share, rounded down: only 1 becomes 100.00 %."""
    return "-" if share is None else f"{int(share * 10_000) / 100 if share < 1 else 100:.2f} %"


def _share_of_part(share: float | None) -> str:
    """Format a share of what was sent during the capture, where "100 %" would be misleading."""
    return "all" if share == 1 else _percent(share)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} ms"
