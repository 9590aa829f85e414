"""Capture a real Dask cluster on this machine, in network namespaces on a bridge.

Needs root, iproute2, tcpdump and (for --mtu) ethtool. Everything runs in new network namespaces, which are
removed at the end in any case. Writes capture.pcap and truth.json (the counts of each
node, see wire_node.py) to --out.

    python benchmarks/wire_cluster.py --python /venv/bin/python --workload array:10000:1000 --out /tmp/capture
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

NODE = Path(__file__).with_name("wire_node.py")
NET = "10.99.7"  # the client is .115, the scheduler .116, workers from .117, as in the study


def sh(*argv: str) -> None:
    """Run a command; raise an error if it fails."""
    subprocess.run(argv, check=True, capture_output=True, text=True)


def hosts(workers: int) -> dict[str, str]:
    """Return the address of each node."""
    names = ["client", "scheduler", *(f"worker-{i + 1}" for i in range(workers))]
    return {name: f"{NET}.{115 + i}" for i, name in enumerate(names)}


@contextlib.contextmanager
def network(nodes: dict[str, str], mtu_frames: bool, tag: str) -> Iterator[str]:
    """Create a learning bridge and one namespace per node; yield the namespace of the bridge."""
    switch = f"{tag}-switch"
    names = [switch, *(f"{tag}-{n}" for n in nodes)]
    try:
        for name in names:
            sh("ip", "netns", "add", name)
        sh("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", switch, "link", "set", "br0", "up")
        for index, (node, address) in enumerate(nodes.items()):
            attach(switch, f"{tag}-{node}", f"p{index}", address, mtu_frames)
        yield switch
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def attach(switch: str, namespace: str, port: str, address: str, mtu_frames: bool) -> None:
    """Connect a node to the bridge. Without offloads, frames have the size that they have on a wire."""
    sh("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    sh("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
    sh("ip", "-n", namespace, "link", "set", "lo", "up")
    sh("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
    sh("ip", "-n", namespace, "link", "set", "eth0", "up")
    sh("ip", "-n", namespace, "route", "add", "default", "dev", "eth0")
    if mtu_frames:
        off = ["tso", "off", "gso", "off", "gro", "off"]
        sh("ip", "netns", "exec", namespace, "ethtool", "-K", "eth0", *off)
        sh("ip", "netns", "exec", switch, "ethtool", "-K", port, *off)


def start(namespace: str, argv: list[str], log: Path, **env: str) -> subprocess.Popen[bytes]:
    """Start a process in a namespace, with its output in a file."""
    with log.open("wb") as out:
        return subprocess.Popen(
            ["ip", "netns", "exec", namespace, *argv],
            stdout=out,
            stderr=out,
            cwd=log.parent,
            env={**os.environ, **env},
        )


def stop(process: subprocess.Popen[bytes], sig: int = signal.SIGTERM, patience_s: float = 8) -> None:
    """Terminate a process that was started here."""
    if process.poll() is None:
        process.send_signal(sig)
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def certificate(folder: Path) -> None:
    """Create a self-signed certificate for TLS clusters."""
    sh(
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=dask",
        "-keyout",
        str(folder / "key.pem"),
        "-out",
        str(folder / "cert.pem"),
    )


def capture(args: argparse.Namespace, out: Path, tag: str) -> dict[str, object]:
    """Run the cluster and its workload under tcpdump; return the counts of the nodes."""
    nodes = hosts(args.workers)
    address = f"{args.protocol}://{nodes['scheduler']}:8786"
    env = {
        "WIRE_WORKERS": str(args.workers),
        "WIRE_THREADS": str(args.threads),
        "OMP_NUM_THREADS": "1",
        **args.env,
    }
    if args.protocol == "tls":
        certificate(out)
        env |= {"WIRE_TLS": str(out), "SSLKEYLOGFILE": str(out / "keys.log")}
    running: list[subprocess.Popen[bytes]] = []
    with network(nodes, args.mtu, tag) as switch:
        try:
            dump = [
                "nice",
                "-n",
                "-15",
                "tcpdump",
                "-i",
                "br0",
                "-w",
                str(out / "capture.pcap"),
                "-B",
                str(args.buffer_mib * 1024),
                "-s",
                str(args.snaplen),
                "-n",
            ]
            dumper = start(switch, dump, out / "tcpdump.log")
            time.sleep(0.5)
            for role in ["scheduler", *(n for n in nodes if n.startswith("worker"))]:
                kind = role.split("-")[0]
                argv = [args.python, str(NODE), kind, address, str(out / f"{role}.json")]
                running.append(
                    start(
                        f"{tag}-{role}",
                        argv,
                        out / f"{role}.log",
                        WIRE_HOST=nodes[role],
                        WIRE_NAME=role,
                        **env,
                    )
                )
                time.sleep(2.0 if kind == "scheduler" else 0)
            client = [args.python, str(NODE), "client", address, str(out / "client.json"), args.workload]
            subprocess.run(
                ["ip", "netns", "exec", f"{tag}-client", *client], check=True, timeout=args.timeout_s,
                env={**os.environ, **env}, stdout=(out / "client.log").open("wb"), stderr=subprocess.STDOUT,
            )  # fmt: skip
            time.sleep(0.3)
        finally:
            for process in running:  # all together, the scheduler first, to read its counters of open streams
                process.terminate()
            for process in running:
                stop(process)
            time.sleep(1.5)  # the kernel delivers packets up to a second late
            stop(dumper, signal.SIGINT)
    return {name: json.loads((out / f"{name}.json").read_text()) for name in nodes}


def main() -> None:
    """Make a capture, and store the counts of its nodes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with the version of distributed to run"
    )
    parser.add_argument(
        "--workload", default="array:2000:500", help="array:SIZE:CHUNK, tasks:N, shuffle:ROWS or groupby:ROWS"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--protocol", default="tcp", choices=["tcp", "tls", "ws"])
    parser.add_argument(
        "--mtu", action="store_true", help="disable offloads: frames are at most as large as the MTU"
    )
    parser.add_argument("--snaplen", type=int, default=262144)
    parser.add_argument("--buffer-mib", type=int, default=512, help="kernel buffer of the capture")
    parser.add_argument("--timeout-s", type=float, default=300)
    parser.add_argument(
        "--env", type=lambda s: tuple(s.split("=", 1)), action="append", default=[], metavar="K=V"
    )
    args = parser.parse_args()
    args.env = dict(args.env)
    args.out.mkdir(parents=True, exist_ok=True)
    truth = capture(args, args.out, f"wire{os.getpid()}")
    (args.out / "truth.json").write_text(json.dumps({"workload": args.workload, "nodes": truth}, indent=1))


if __name__ == "__main__":
    main()
