"""The panels of a run's timeline: threads, transfers, messages and event loops, links."""

from __future__ import annotations

from dasklab.breakdown.model.run import Run
from dasklab.report.timeline.links_panel import links_panel
from dasklab.report.timeline.messages_panel import captured_messages_panel, messages_panel
from dasklab.report.timeline.rectangles import Panel
from dasklab.report.timeline.threads_panel import threads_panel
from dasklab.report.timeline.transfers_panel import transfers_panel
from dasklab.results.storage.recording import Recording


def panels(run: Run, capture: Recording | None = None) -> list[Panel]:
    """Return the panels that have something to show.

    Args:
        capture: if the captured runs are explained, with the messages that packets showed.
    """
    messages = captured_messages_panel(run, capture) if capture else messages_panel(run)
    every = (threads_panel(run), transfers_panel(run), messages, links_panel(run))
    return [panel for panel in every if panel.intervals]
