"""Measure what this host's link delivers to other hosts: round-trip times with ping, throughput with iperf3.

Hosts are named as in ``/etc/dasklab/host.json``; their lab addresses are used. The caller may give the
addresses of other names. Any name that is in neither must be an address, or one that this host can resolve.
A probe that fails, for instance on a link that loses everything, is reported under ``errors`` and does not
end the others.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time

from dasklab_guest.common import HostError, host, start_unit, stop_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dasklab_guest.common import Document

PING_TIMEOUT_S = 5
IPERF_MARGIN_S = 60  # beyond its run: connections over lossy links take their time
LOADED_PING_INTERVAL_S = 0.1  # ten small frames per second load nothing
STOP_TIMEOUT_S = 5  # for the server to end before it is killed
UDP_BYTES = 1400  # payload that fits into a frame on any link
UNIT = "dasklab-iperf3.service"


def serve(ttl_s: float) -> Document:
    """Start an iperf3 server on the lab address, or on all addresses, for at most ``ttl_s`` seconds."""
    address = host()["lab"]["address"]
    stop_units(UNIT)
    argv = ["iperf3", "--server", *(["--bind", address] if address else [])]
    start_unit(UNIT, argv, RuntimeMaxSec=ttl_s, TimeoutStopSec=STOP_TIMEOUT_S)
    return {"serving": address}


def address_of(name: str, settings: Document, addresses: Mapping[str, str]) -> str:
    """Return the lab address of a host, or the one that the caller gave, or the name if it is an address.

    Raises:
        HostError: the name has no address.
    """
    address: str | None = settings["hosts"].get(name) or addresses.get(name)
    if address:
        return address
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        hint = "give its address, or set ansible_host or lab_address in the inventory"
        raise HostError(f"{name} cannot be resolved; {hint}") from None
    return name


def rtt(
    to: Sequence[str], pings: int, interval_s: float, addresses: Mapping[str, str] | None = None
) -> Document:
    """Ping other hosts, one after the other.

    Args:
        to: names of hosts.
        pings: number of pings to each.
        interval_s: seconds between two pings.
        addresses: the addresses of hosts that are not of this lab.

    Returns:
        ``rtt``: one entry per host; ``samples_ms`` lacks the pings that were lost.
    """
    settings, results = host(), []
    targets = {name: address_of(name, settings, addresses or {}) for name in to}
    for name, address in targets.items():
        argv = ["ping", "-n", "-c", str(pings), "-i", str(interval_s), "-W", str(PING_TIMEOUT_S)]
        process = subprocess.run([*argv, address], capture_output=True, text=True, check=False)
        samples = parse_ping(process.stdout)
        results.append({"src": settings["name"], "dst": name, "pings": pings, "samples_ms": samples})
    return {"rtt": results}


def parse_ping(text: str) -> list[float]:
    """Return the round-trip times in ms of ping's output. An answer that arrived twice counts once."""
    return [float(value) for value in re.findall(r"time=([\d.]+) ms(?! \(DUP!\))", text)]


def parse_timed_ping(text: str) -> list[tuple[float, float]]:
    """Return (time sent in s since the epoch, round-trip time in ms) of each answer of ``ping -D``."""
    answers = re.findall(r"^\[([\d.]+)\] .*time=([\d.]+) ms(?! \(DUP!\))", text, re.MULTILINE)
    return [(float(arrival_s) - float(rtt_ms) / 1e3, float(rtt_ms)) for arrival_s, rtt_ms in answers]


def under_load(pings: Sequence[tuple[float, float]], end_s: float, seconds: float) -> list[float]:
    """Return the round-trip times in ms of pings sent while iperf3 certainly loaded the link.

    iperf3 ended after ``seconds`` of sending and some round trips in which both sides exchanged their
    results. How long it took to connect is unknown, so the last third of that time does not count.
    """
    return [rtt_ms for sent_s, rtt_ms in pings if end_s - seconds <= sent_s <= end_s - seconds / 3]


def throughput(
    to: Sequence[str],
    runs: int,
    seconds: float,
    udp: bool = False,
    addresses: Mapping[str, str] | None = None,
) -> Document:
    """Send to other hosts, one after the other, with TCP and optionally UDP.

    Args:
        to: names of hosts.
        runs: number of iperf3 runs to each.
        seconds: length of a run.
        udp: whether to measure UDP as well.
        addresses: the addresses of hosts that are not of this lab.

    Returns:
        ``throughput`` and ``errors``: one entry per run.
    """
    settings = host()
    targets = {name: address_of(name, settings, addresses or {}) for name in to}
    results: list[Document] = []
    errors: list[Document] = []
    protocols = ["tcp", "udp"] if udp else ["tcp"]
    for name, protocol in [(name, protocol) for name in to for protocol in protocols]:
        for _ in range(runs):
            probe = {"src": settings["name"], "dst": name, "proto": protocol}
            try:
                results.append({**probe, **measure(targets[name], protocol, seconds)})
            except HostError as error:
                errors.append({**probe, "error": str(error)})
    return {"throughput": results, "errors": errors}


def measure(address: str, protocol: str, seconds: float) -> Document:
    """Run iperf3 once; with TCP, also measure what small frames wait meanwhile."""
    if protocol == "udp":
        return iperf(address, protocol, seconds)
    argv = ["ping", "-n", "-D", "-i", str(LOADED_PING_INTERVAL_S), address]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as ping:
        try:
            result, end_s = iperf(address, protocol, seconds), time.time()
        finally:
            ping.terminate()
            output = ping.communicate()[0]
    return {**result, "rtt_ms": under_load(parse_timed_ping(output), end_s, seconds)}


def iperf(address: str, protocol: str, seconds: float) -> Document:
    """Run iperf3 once.

    Raises:
        HostError: it failed or did not end.
    """
    argv = ["iperf3", "--json", "--client", address, "--time", str(max(1, round(seconds)))]
    argv += ["--udp", "--bitrate", "0", "--length", str(UDP_BYTES)] if protocol == "udp" else []
    timeout_s = seconds + IPERF_MARGIN_S
    try:
        process = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise HostError(f"iperf3 did not end within {IPERF_MARGIN_S} s after its run") from None
    return parse_iperf(json.loads(process.stdout) if process.stdout else {"error": process.stderr.strip()})


def parse_iperf(document: Document) -> Document:
    """Return received Mbit/s, and retransmits (TCP) or lost frames (UDP), from iperf3's JSON."""
    if "error" in document or "end" not in document:
        raise HostError(document.get("error", "iperf3 stopped before its end"))
    sender, receiver = document["end"]["sum_sent"], document["end"]["sum_received"]
    if "lost_percent" in receiver:
        detail = {"lost_pct": receiver["lost_percent"], "frames": receiver["packets"]}
    else:
        detail = {"retransmits": sender["retransmits"]}
    return {"mbit": receiver["bits_per_second"] / 1e6, "seconds": receiver["seconds"], **detail}


def stop() -> Document:
    """Stop the server."""
    reset()
    return {}


def reset() -> None:
    """Stop the server."""
    stop_units("dasklab-iperf3*")


STEPS = {"serve": serve, "rtt": rtt, "throughput": throughput, "stop": stop}
