"""A trial as a trace for ui.perfetto.dev: threads, transfers and event loops on one clock.

The name of the file chooses the form. ``.json`` gives the Trace Event Format, which chrome://tracing and most
other viewers read (``chrome_json``). Any other name gives Perfetto's own protobuf format
(``perfetto_proto``), which also has arrows from a task to the transfer of its result to the task that needed
it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.trace import chrome_json

SUFFIX = ".pftrace"


def writer(path: Path) -> Callable[[Explained, Path], None]:
    """Return the function that writes the form that the name of a file chooses.

    Raises:
        ModuleNotFoundError: it is Perfetto's form, and the package perfetto is not installed.
    """
    if path.suffix == ".json":
        return chrome_json.write
    from dasklab.breakdown.show.trace import perfetto_proto  # it needs an optional package

    return perfetto_proto.write


def write(explained: Explained, path: Path) -> None:
    """Write the timed runs as one file."""
    writer(path)(explained, path)
