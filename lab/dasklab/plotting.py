"""The style shared by all figures, and how a figure is saved."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from dasklab import atomic

OURS, STUDY, MORE = "#2563a8", "#9a9a94", ("#2563a8", "#c2571a", "#3d8a5f", "#8a4fa3", "#b39019")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666660",
    "axes.grid": True,
    "grid.color": "#e6e6e0",
    "axes.axisbelow": True,
    "svg.hashsalt": "dasklab",
    "svg.fonttype": "path",
}


def label_figure(figure: Figure, word: str) -> None:
    """Print a word, such as ``simulated``, in the figure's upper right corner."""
    figure.text(0.995, 0.99, word, ha="right", va="top", color="#b3261e", fontsize=10, fontweight="bold")


def save(figure: Figure, stem: Path) -> str:
    """Write ``stem``.svg and ``stem``.png, and return the text of the SVG."""
    text, png = io.StringIO(), io.BytesIO()
    with mpl.rc_context(STYLE):  # with its hash salt, equal figures give equal files
        figure.draw_without_rendering()
        # savefig would lay out and draw the figure twice for each format; a report has dozens of figures.
        figure.set_layout_engine("none")
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(text, metadata={"Date": None})
        figure.set_dpi(144)
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(png)
    with atomic.replaced(stem.with_suffix(".png")) as draft:
        draft.write_bytes(png.getvalue())
    atomic.write_text(stem.with_suffix(".svg"), text.getvalue())
    return text.getvalue()
