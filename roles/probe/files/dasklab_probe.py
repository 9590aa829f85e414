#!/usr/bin/python3 -SsE
"""Measure what this host's lab link delivers towards others.

    dasklab_probe.py serve TTL_S                                  answer iperf3 for so long
    dasklab_probe.py rtt '{"to": ["worker-2"], "pings": 30, "interval_s": 0.2}'
    dasklab_probe.py throughput '{"to": ["worker-2"], "runs": 1, "seconds": 3, "udp": false}'

Others are named as in ``/etc/dasklab/host.json``; their lab addresses are used. A probe that fails, as over a
link that loses all, is told under ``errors`` and does not end the others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

from dasklab_common import SCHEMA, HostError, config, main, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dasklab_common import Document

ANSWER_S = 5  # how long a ping's answer is waited for
PATIENCE_S = 60  # for iperf3 beyond its run: connections over lossy links take their time
PING_S = 0.1  # between pings under load: ten small frames a second load nothing
STOP_S = 5  # for the server to end, before it is killed
UDP_BYTES = 1400  # payload that fits a frame on any link
UNIT = "dasklab-iperf3.service"


def serve(address: str, ttl_s: int) -> Document:
    """Start an iperf3 server on the lab address, for a limited time."""
    subprocess.run(["systemctl", "stop", UNIT], capture_output=True, check=False)
    limits = [f"--property=RuntimeMaxSec={ttl_s}", f"--property=TimeoutStopSec={STOP_S}"]
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", *limits]
    run([*unit, "iperf3", "--server", "--bind", address])
    return {"schema": SCHEMA, "serving": address}


def rtt(source: str, asked: Document, hosts: dict[str, str]) -> Document:
    """Ping each of the others; samples are in ms, lost pings are missing in them."""
    found = []
    for name in asked["to"]:
        count = ["-n", "-c", str(asked["pings"]), "-i", str(asked["interval_s"]), "-W", str(ANSWER_S)]
        done = subprocess.run(["ping", *count, hosts[name]], capture_output=True, text=True, check=False)
        samples = pinged(done.stdout)
        found.append({"src": source, "dst": name, "pings": asked["pings"], "samples_ms": samples})
    return {"schema": SCHEMA, "rtt": found}


def pinged(text: str) -> list[float]:
    """Return the round-trip times, in ms, of ping's output (pure); an answer that came twice counts once."""
    return [float(value) for value in re.findall(r"time=([\d.]+) ms(?! \(DUP!\))", text)]


def pinged_at(text: str) -> list[tuple[float, float]]:
    """Return when each ping of ``ping -D`` was sent, in s since the epoch, and its time in ms (pure)."""
    answers = re.findall(r"^\[([\d.]+)\] .*time=([\d.]+) ms(?! \(DUP!\))", text, re.MULTILINE)
    return [(float(came) - float(took) / 1e3, float(took)) for came, took in answers]


def under_load(pings: list[tuple[float, float]], ended: float, seconds: float) -> list[float]:
    """Return the times of the pings that were sent while iperf3 surely was at it (pure).

    It ended after ``seconds`` of sending, and some round trips in which both sides told each other their
    results; how long it took to connect is not known. So the last third of that time does not count.
    """
    return [took for sent, took in pings if ended - seconds <= sent <= ended - seconds / 3]


def throughput(source: str, asked: Document, hosts: dict[str, str]) -> Document:
    """Send to each of the others, one after the other, with TCP and, if asked, UDP."""
    delivered: list[Document] = []
    errors: list[Document] = []
    protocols = ["tcp", "udp"] if asked["udp"] else ["tcp"]
    for name, proto in [(name, proto) for name in asked["to"] for proto in protocols]:
        for _ in range(asked["runs"]):
            probe = {"src": source, "dst": name, "proto": proto}
            try:
                delivered.append({**probe, **iperf(hosts[name], proto, asked["seconds"])})
            except HostError as error:
                errors.append({**probe, "error": str(error)})
    return {"schema": SCHEMA, "throughput": delivered, "errors": errors}


def iperf(address: str, proto: str, seconds: float) -> Document:
    """Run iperf3 once and return what it measured; with TCP also what small frames waited meanwhile."""
    if proto == "udp":
        return loaded(address, proto, seconds)
    ping = ["ping", "-n", "-D", "-i", str(PING_S), address]
    with subprocess.Popen(ping, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as pinging:
        try:
            found, ended = loaded(address, proto, seconds), time.time()
        finally:
            pinging.terminate()
            said = pinging.communicate()[0]
    return {**found, "rtt_ms": under_load(pinged_at(said), ended, seconds)}


def loaded(address: str, proto: str, seconds: float) -> Document:
    """Run iperf3 once and return what it said."""
    command = ["iperf3", "--json", "--client", address, "--time", str(max(1, round(seconds)))]
    command += ["--udp", "--bitrate", "0", "--length", str(UDP_BYTES)] if proto == "udp" else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds + PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        raise HostError(f"iperf3 did not end within {PATIENCE_S} s after its run") from None
    return measured(json.loads(done.stdout) if done.stdout else {"error": done.stderr.strip()})


def measured(document: Document) -> Document:
    """Return received Mbit/s, retransmits (TCP) or lost frames (UDP) of iperf3's answer (pure)."""
    if "error" in document or "end" not in document:
        raise HostError(document.get("error", "iperf3 stopped before its end"))
    sent, received = document["end"]["sum_sent"], document["end"]["sum_received"]
    if "lost_percent" in received:
        detail = {"lost_pct": received["lost_percent"], "frames": received["packets"]}
    else:
        detail = {"retransmits": sent["retransmits"]}
    return {"mbit": received["bits_per_second"] / 1e6, "seconds": received["seconds"], **detail}


def answer(argv: list[str]) -> Document:
    """Do what the command line says and return the answer."""
    if len(argv) != 2 or argv[0] not in ("serve", "rtt", "throughput"):
        return sys.exit(__doc__)
    settings = config()
    if argv[0] == "serve":
        return serve(settings["lab"]["address"], int(argv[1]))
    probe = {"rtt": rtt, "throughput": throughput}[argv[0]]
    return probe(settings["name"], json.loads(argv[1]), settings["hosts"])


if __name__ == "__main__":
    main(answer)
