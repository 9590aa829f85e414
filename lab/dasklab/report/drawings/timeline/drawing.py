"""The timeline as a document for BokehJS: a figure for each panel, with one time axis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bokeh
import numpy as np
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    PanTool,
    Range1d,
    WheelZoomTool,
)
from bokeh.plotting import figure

from dasklab.breakdown.model.causes import PARTS
from dasklab.report.drawings.timeline.rectangles import SEVERAL, Panel, at_most

MOST_STORED = 300_000  # rectangles of all panels in a page; more are merged, which bounds its size
LABEL_PX, ROW_PX, FEW_ROWS = 14, 22, 14  # the height of a row, and of one of a few rows
MAX_PANEL_PX = 480
TITLE_PX, TICKS_PX, AXIS_PX = 30, 22, 26  # the heights of a title, of an axis' ticks, of its name
LABELS_PX = 150
TOOLTIP = """<div style="max-width: 26rem; overflow-wrap: anywhere"><strong>@what{custom}</strong><br>
@detail{custom}<br>@length{custom} from @left{0.0000} s on@count{custom}</div>"""
DRAWN = ("left", "right", "bottom", "top", "colour", "what", "detail", "count", "length")  # columns
SCRIPT = f"bokeh-{bokeh.__version__}.min.js"
"""BokehJS, beside the pages that draw with it."""


def script() -> bytes:
    """Return the code of BokehJS, which the installed package brings along."""
    return (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_bytes()


def reduced(panels: Sequence[Panel], length_s: float) -> list[Panel]:
    """Return the panels with as many rectangles as a page may hold.

    The panel of threads may have half of them, the others share the rest.
    """
    others = MOST_STORED // 2 // max(1, len(panels) - 1)
    mosts = [MOST_STORED // 2] + [others] * (len(panels) - 1)
    return [at_most(panel, most, length_s) for panel, most in zip(panels, mosts, strict=True)]


def document(panels: Sequence[Panel], length_s: float) -> str:
    """Return the document as JSON that may stand in a page; ``timeline.js`` draws it.

    The figures are empty: which rectangles are drawn depends on the part of the repeat that the reader looks
    at.
    """
    time = Range1d(start=0, end=length_s, bounds=(0, length_s), min_interval=length_s / 1e5, name="time")
    colours = LinearColorMapper(
        palette=[part.light for part in PARTS], low=-0.5, high=len(PARTS) - 0.5, name="colours"
    )
    details = list(dict.fromkeys(text for panel in panels for text in panel.details))
    texts = ColumnDataSource({"details": details})
    codes = {text: code for code, text in enumerate(details)}
    figures = []
    for panel in panels:
        drawing = _figure(panel, time, colours, panel is panels[0], panel is panels[-1])
        drawing.add_tools(_hover(panel, texts))
        drawing.tags = [_short_labels(panel), _stored(panel, codes)]
        figures.append(drawing)
    layout = column(figures, sizing_mode="stretch_width", spacing=0)
    return json.dumps(json_item(layout), separators=(",", ":")).replace("</", "<\\/")


def _figure(panel: Panel, time: Range1d, colours: LinearColorMapper, is_first: bool, is_last: bool) -> Any:
    number = len(panel.rows)
    height = min(MAX_PANEL_PX, number * (ROW_PX if number <= FEW_ROWS else LABEL_PX))
    around = TITLE_PX + TICKS_PX * (is_first or is_last) + AXIS_PX * is_last
    drawing = figure(
        title=panel.title,
        height=height + around,
        sizing_mode="stretch_width",
        x_range=time,
        y_range=Range1d(start=number, end=0),
        toolbar_location=None,
        min_border_left=LABELS_PX,
        min_border_right=12,
        tools=[],
        name="panel",
    )
    drawing.quad(
        left="left",
        right="right",
        bottom="bottom",
        top="top",
        source=ColumnDataSource({name: [] for name in DRAWN}),
        line_color=None,
        fill_color={"field": "colour", "transform": colours},
    )
    step = max(1, -(-LABEL_PX * number // height))  # labels do not overlap
    drawing.yaxis.ticker = FixedTicker(ticks=[at + 0.5 for at in range(0, number, step)])
    drawing.yaxis.major_label_overrides = {at + 0.5: row.label for at, row in enumerate(panel.rows)}
    drawing.yaxis.major_tick_line_color = None
    drawing.yaxis.axis_line_color = None
    drawing.ygrid.visible = False
    drawing.xaxis.axis_label = "seconds since the run's start" if is_last else None
    drawing.xaxis.visible = is_first or is_last
    pan, zoom = PanTool(dimensions="width"), WheelZoomTool(dimensions="width", modifiers="ctrl")
    drawing.add_tools(pan, zoom)
    drawing.toolbar.active_drag, drawing.toolbar.active_scroll = pan, zoom
    return drawing


def _short_labels(panel: Panel) -> list[list[float | str]]:
    return [[at + 0.5, row.short] for at, row in enumerate(panel.rows)]


def _stored(panel: Panel, codes: Mapping[str, int]) -> ColumnDataSource:
    """Return all rectangles of a panel by row and time, in as few bytes as they need."""
    some = panel.rectangles
    some = some.select(np.lexsort((some.left, some.row)))
    texts = np.array([*(codes[text] for text in panel.details), SEVERAL], np.int32)
    return ColumnDataSource(
        {
            "left": some.left,
            "length": (some.right - some.left).astype(np.float32),
            "row": some.row.astype(np.uint16),
            "bottom": (some.row + some.high).astype(np.float32),
            "top": (some.row + some.low).astype(np.float32),
            "colour": some.colour.astype(np.uint8),
            "what": some.what.astype(np.uint16),
            "detail": texts[some.detail],
            "count": some.count.astype(np.uint32),
        }
    )


def _hover(panel: Panel, texts: ColumnDataSource) -> HoverTool:
    descriptions = list(panel.descriptions)
    detail = "return value < 0 ? '' : texts.get_column('details')[value];"
    length = "return value < 1 ? `${(1e3 * value).toPrecision(3)} ms` : `${value.toPrecision(4)} s`;"
    return HoverTool(
        tooltips=TOOLTIP,
        formatters={
            "@what": CustomJSHover(args={"texts": descriptions}, code="return texts[value];"),
            "@detail": CustomJSHover(args={"texts": texts}, code=detail),
            "@length": CustomJSHover(code=length),
            "@count": CustomJSHover(
                code="return value > 1 ? `, the longest of ${value} drawn together` : '';"
            ),
        },
        point_policy="follow_mouse",
        attachment="vertical",
    )
