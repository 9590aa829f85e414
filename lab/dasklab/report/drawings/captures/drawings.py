"""Drawings of captures: dialogues, intervals, traffic by pair and second, and the counting methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from daskwire.analysis.tables.traffic import Packet
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dasklab.model.forms.number_format import format_number
from dasklab.plotting import MORE, OURS, STUDY, STYLE
from dasklab.report.drawings.figures import legend

WIDTH = 7.2
THEIR_METHOD = "#c2571a"
METHODS = {"2019 study": STUDY, "its method, here": THEIR_METHOD, "decoded, here": OURS}
SYMBOLS = ("o", "v", "^")
WAYS: dict[str, Literal["-", "--"]] = {"sent": "-", "received": "--"}


def dialogues(ours: Sequence[Packet], theirs: Sequence[Packet]) -> Figure:
    """Draw two exchanges side by side as ladders: an arrow for each packet, time runs downwards."""
    with mpl.rc_context(STYLE):
        longest = max(len(ours), len(theirs))
        figure = _figure(0.9 + 0.62 * longest)
        for axes, exchange, title, colour in zip(
            _grid(figure, 1, 2)[0], (ours, theirs), ("here", "2019 study"), (OURS, "#6f6f69"), strict=True
        ):
            _ladder(axes, exchange, title=title, colour=colour, longest=longest)
        return figure


def _ladder(axes: Axes, exchange: Sequence[Packet], *, title: str, colour: str, longest: int) -> None:
    left = exchange[0].source
    for x, name in enumerate((left, exchange[0].destination)):
        axes.plot([x, x], [-0.2, longest], color="#666660", linewidth=1)
        axes.text(x, -0.35, name, ha="center", va="bottom", fontsize=10)
    for y, packet in enumerate(exchange):
        start, end = (0, 1) if packet.source == left else (1, 0)
        height = y + 0.62
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (end, height + 0.12), (start, height), arrowprops=arrow)
        weight = "bold" if packet.payload_bytes else "normal"
        axes.text(
            0.5, height - 0.13, _packet(packet, left), ha="center", va="bottom", fontsize=9, weight=weight
        )
        numbers = f"seq {packet.seq:,}  ack {packet.ack:,}{_time(packet)}"
        axes.text(0.5, height + 0.16, numbers, ha="center", va="top", fontsize=8, color="#5f5f5a")
    axes.set_title(title, fontsize=11, color=colour, pad=10)
    axes.set_xlim(-0.25, 1.25)
    axes.set_ylim(longest + 0.1, -0.7)
    axes.set_axis_off()


def _packet(packet: Packet, worker: str) -> str:
    what = "ACK" if not packet.payload_bytes else "heartbeat" if packet.source == worker else "status"
    headers = packet.frame_bytes - packet.payload_bytes
    payload = f"{packet.payload_bytes:,} + " if packet.payload_bytes else ""
    return f"{what}{' and D-SACK' if packet.received_twice else ''}: {payload}{headers} B"


def _time(packet: Packet) -> str:
    return "" if math.isnan(packet.time_ms) else f"  +{packet.time_ms:.1f} ms"


def intervals(
    by_worker: Mapping[str, Sequence[float]], requested_ms: float | None, printed_ms: float
) -> Figure:
    """Draw each worker's intervals as dots with their median.

    Args:
        by_worker: the intervals of each worker, in ms.
        requested_ms: the interval that the scheduler requests.
        printed_ms: the interval that the study printed.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(1.3 + 0.4 * len(by_worker))
        axes = figure.add_subplot()
        for y, values in enumerate(by_worker.values()):
            axes.plot(values, [y] * len(values), "o", color=OURS, alpha=0.3, markersize=5)
            axes.plot([np.median(values)] * 2, [y - 0.3, y + 0.3], color=OURS, linewidth=2.5)
            low, middle, high = (format_number(float(v)) for v in np.quantile(values, (0.05, 0.5, 0.95)))
            right = axes.get_yaxis_transform()
            axes.text(1.02, y, f"{middle} ({low} to {high})", transform=right, va="center", fontsize=9)
        if requested_ms is not None:
            label = f"requested by the scheduler: {requested_ms:g} ms"
            axes.axvline(requested_ms, color="#666660", linewidth=1, label=label)
        label = f"printed by the study: {printed_ms:g} ms"
        axes.axvline(printed_ms, color=STUDY, linestyle="--", label=label)
        axes.set_yticks(range(len(by_worker)), list(by_worker))
        axes.set_ylim(len(by_worker) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(left=0)
        axes.set_xlabel("ms since the worker's previous heartbeat")
        legend(axes)
        return figure


def matrices(ours: Mapping[tuple[str, str], float], theirs: Mapping[tuple[str, str], float]) -> Figure:
    """Draw two matrices of shares in %: senders are rows, receivers are columns."""
    with mpl.rc_context(STYLE):
        figure = _figure(3.6)
        for axes, pairs, title in zip(
            _grid(figure, 1, 2)[0], (ours, theirs), ("here", "2019 study"), strict=True
        ):
            _matrix(axes, pairs, title, max(*ours.values(), *theirs.values()))
        return figure


def _matrix(axes: Axes, pairs: Mapping[tuple[str, str], float], title: str, top: float) -> None:
    nodes = sorted({node for pair in pairs for node in pair})
    values = np.array([[pairs.get((a, b), math.nan) for b in nodes] for a in nodes])
    colours = mpl.colors.LinearSegmentedColormap.from_list(
        "", ["#f3f3ee", OURS if title == "here" else STUDY]
    )
    axes.imshow(values, cmap=colours, vmin=0, vmax=top)
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            dark = "white" if value > 0.6 * top else "#1d1d1b"
            axes.text(column, row, format_number(value), ha="center", va="center", fontsize=9, color=dark)
    axes.set_xticks(range(len(nodes)), nodes, rotation=30, ha="right", fontsize=9)
    axes.set_yticks(range(len(nodes)), nodes, fontsize=9)
    axes.grid(visible=False)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    axes.set_title(f"{title}, % of bytes", fontsize=10)


Series = Mapping[tuple[str, str], Mapping[int, float]]


def series(ours: Series, bands: Sequence[tuple[float, float]], theirs: Series) -> Figure:
    """Draw a row for each node, ours left, the study's right; each curve is in % of its own peak."""
    with mpl.rc_context(STYLE):
        nodes = [sorted({node for node, _ in side}) for side in (ours, theirs)]
        rows = max(map(len, nodes))
        figure = _figure(0.9 + 1.05 * rows)
        grid = _grid(figure, rows, 2)
        for column, (side, title) in enumerate(((ours, "here"), (theirs, "2019 study"))):
            for row in range(rows):
                axes = grid[row][column]
                if row >= len(nodes[column]):
                    axes.set_axis_off()
                    continue
                _node(axes, nodes[column][row], side, (OURS, MORE[1]) if not column else (STUDY, "#4c4c48"))
                for start, end in () if column else bands:
                    axes.axvspan(start, end, color="#e3ebf4", zorder=0)
                axes.set_xlim(*_span(side, () if column else bands))
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
                axes.tick_params(labelbottom=row == len(nodes[column]) - 1)
            grid[0][column].set_title(f"{title}, % of each curve's peak", fontsize=10)
            grid[len(nodes[column]) - 1][column].set_xlabel("seconds")
        ways = [Line2D([], [], color="#4c4c48", linestyle=line, label=way) for way, line in WAYS.items()]
        figure.legend(handles=ways, frameon=False, fontsize=9, loc="outside lower center", ncols=2)
        return figure


def _node(axes: Axes, node: str, side: Series, colours: tuple[str, str]) -> None:
    for (way, line), colour in zip(WAYS.items(), colours, strict=True):
        rates = side.get((node, way), {})
        peak = max(rates.values(), default=0) or 1
        if _has_peaks_only(rates):
            shift = 0.1 if way == "sent" else -0.1
            heights = [100 * mbit / peak for mbit in rates.values()]
            axes.vlines([second + shift for second in rates], 0, heights, color=colour, linestyle=line)
            continue
        seconds = range(min(rates, default=0), max(rates, default=0) + 1)
        axes.plot(seconds, [100 * rates.get(s, 0) / peak for s in seconds], line, color=colour)
    axes.set_ylim(0, 115)
    axes.set_yticks([0, 100])
    axes.set_ylabel(node, fontsize=9)


def _has_peaks_only(rates: Mapping[int, float]) -> bool:
    return bool(rates) and 0 < len(rates) < 0.5 * (max(rates) - min(rates) + 1)


def _span(side: Series, bands: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if bands:
        return min(b for b, _ in bands) - 1, max(e for _, e in bands) + 1
    seconds = [second for rates in side.values() for second in rates]
    return min(seconds), max(seconds)


def compositions(senders: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Draw bars of the shares of ops, in %, with a panel for each sender and a colour for each method."""
    with mpl.rc_context(STYLE):
        rows = [len(next(iter(counts.values()))) for counts in senders.values()]
        figure = _figure(1.1 + 0.62 * sum(rows))
        panels = figure.subplots(len(senders), 1, sharex=True, height_ratios=rows, squeeze=False)[:, 0]
        for axes, (sender, counts) in zip(panels, senders.items(), strict=True):
            for index, (method, shares) in enumerate(counts.items()):
                ys = [y + 0.27 * (index - 1) for y in range(len(shares))]
                axes.barh(ys, list(shares.values()), 0.26, color=METHODS[method])
                for y, share in zip(ys, shares.values(), strict=True):
                    axes.text(share + 1, y, f"{format_number(share)} %", va="center", fontsize=8)
            axes.set_yticks(range(len(shares)), [_op(op) for op in shares])
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.set_xlim(0, 112)
            axes.text(1, 0.98, f"sent by the {sender}", transform=axes.transAxes, ha="right", va="top")
        panels[-1].set_xlabel("% of the sender's packets, or of its ops and other messages")
        legend(panels[0], handles=[Patch(color=colour, label=method) for method, colour in METHODS.items()])
        return figure


def _op(op: str) -> str:
    return {"data": "all else (“data”)", "delete-data": "delete-data,\ntoday free-keys"}.get(op, op)


def factors(by_op: Mapping[tuple[str, str], Mapping[str, float]]) -> Figure:
    """Draw the packets counted for each op sent, by way and op and by size of packets, on a log axis."""
    with mpl.rc_context(STYLE):
        figure = _figure(1.1 + 0.5 * len(by_op))
        axes = figure.add_subplot()
        for index, (size, symbol) in enumerate(zip(next(iter(by_op.values())), SYMBOLS, strict=True)):
            values = [row[size] or math.nan for row in by_op.values()]  # 0 has no place on a log axis
            ys = [y + 0.22 * (index - 1) for y in range(len(values))]
            axes.plot(values, ys, symbol, color=(OURS, *MORE[1:])[index], markersize=7, label=size)
            for value, y in zip(values, ys, strict=True):
                if not math.isnan(value):
                    _annotate(axes, value, y, f"\u00d7{format_number(value)}")
        axes.axvline(1, color="#666660", linewidth=1)
        axes.set_xscale("log")
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(lambda value, _: f"\u00d7{value:g}")
        axes.set_yticks(range(len(by_op)), [f"{way}:\n{_op(op)}" for way, op in by_op], fontsize=9)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("packets counted for each op sent")
        legend(axes)
        return figure


def _annotate(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (7, 0), textcoords="offset points", va="center", fontsize=8)


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _grid(figure: Figure, rows: int, columns: int) -> Any:
    return figure.subplots(rows, columns, squeeze=False)
