"""Serve the totals of a running capture to Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from daskwire.analysis.live.monitor import Monitor
from daskwire.base.errors import WireError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_METRIC_SERIES = 1000  # ops and addresses come from the network
COUNTERS = {
    "packets": "Packets, of any kind.",
    "wire_bytes": "Bytes of all packets on the wire.",
    "messages": "Complete Dask messages.",
}


def exposition(monitor: Monitor, dropped: int) -> str:
    """Return all metrics in Prometheus' text format.

    Args:
        monitor: the running capture.
        dropped: packets that the capturing program lost.
    """
    return "\n".join([*_lines(monitor, dropped), ""])


def _lines(monitor: Monitor, dropped: int) -> Iterator[str]:
    for name, text in COUNTERS.items():
        yield from _head(f"daskwire_{name}_total", text, "counter")
        yield f"daskwire_{name}_total {getattr(monitor.totals, name)}"
    yield from _head("daskwire_dropped_packets_total", "Packets that the capturing program lost.", "counter")
    yield f"daskwire_dropped_packets_total {dropped}"
    yield from _head("daskwire_ops_total", "Dask ops, those in batches included.", "counter")
    for op, number in monitor.totals.ops.most_common(MAX_METRIC_SERIES):
        yield f"daskwire_ops_total{{op={_quoted(op)}}} {number}"
    yield from _head("daskwire_message_bytes_total", "Bytes of Dask messages.", "counter")
    for (source, destination), size in monitor.totals.pairs.most_common(MAX_METRIC_SERIES):
        labels = f"source={_quoted(source)},destination={_quoted(destination)}"
        yield f"daskwire_message_bytes_total{{{labels}}} {size}"
    yield from _head("daskwire_problem_cost_seconds", "What each recent problem cost.", "gauge")
    for row in monitor.problems[:MAX_METRIC_SERIES]:
        places = ",".join(f"{name}={_quoted(row[name])}" for name in ("problem", "source", "destination"))
        yield f"daskwire_problem_cost_seconds{{{places}}} {row['cost_s'] or 0}"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _quoted(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def serve(host: str, port: int, text: Callable[[], str]) -> ThreadingHTTPServer:
    """Serve ``/metrics`` in a thread until the server is shut down.

    Raises:
        WireError: the address cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_metrics = self.path.partition("?")[0] in ("/", "/metrics")
            body = text().encode("utf-8", "backslashreplace") if is_metrics else b"not found\n"
            self.send_response(200 if is_metrics else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass  # the screen shows the capture

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise WireError(f"--metrics {host}:{port}: {error.strerror}") from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
