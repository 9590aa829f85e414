"""The panels of a repeat's timeline: threads, transfers, messages and event loops, links."""

from __future__ import annotations

from dasklab.breakdown.model.repeat import Repeat
from dasklab.report.drawings.timeline.links_panel import links_panel
from dasklab.report.drawings.timeline.messages_panel import captured_messages_panel, messages_panel
from dasklab.report.drawings.timeline.rectangles import Panel
from dasklab.report.drawings.timeline.threads_panel import threads_panel
from dasklab.report.drawings.timeline.transfers_panel import transfers_panel
from dasklab.results.recording import Recording


def panels(repeat: Repeat, capture: Recording | None = None) -> list[Panel]:
    """Return the panels that have something to show.

    Args:
        capture: if the captured repeats are explained, with the messages that packets showed.
    """
    messages = captured_messages_panel(repeat, capture) if capture else messages_panel(repeat)
    every = (threads_panel(repeat), transfers_panel(repeat), messages, links_panel(repeat))
    return [panel for panel in every if panel.intervals]
