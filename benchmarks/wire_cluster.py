"""Capture a real Dask cluster on this machine, in network namespaces on a bridge.

Needs root, iproute2, tcpdump and (for --mtu) ethtool. Everything runs in new network namespaces, which are
removed at the end in any case. Writes capture.pcap and truth.json (the counts of each node, see wire_node.py)
to --out.

    python benchmarks/wire_cluster.py --python /venv/bin/python --workload array:10000:1000 --out /tmp/capture
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--python": (sys.executable, "interpreter with the version of distributed to run"),
            "--workload": ("array:2000:500", "array:SIZE:CHUNK, tasks:N, shuffle:ROWS or groupby:ROWS"),
            "--out": (Path, "folder of the capture"),
            "--workers": (3, "how many"),
            "--threads": (2, "of a worker"),
            "--protocol": (("tcp", "tls", "ws"), "of Dask's connections; tcp if not named"),
            "--mtu": (False, "disable offloads: no frame exceeds the MTU"),
            "--snaplen": (262144, "bytes of a packet that are kept"),
            "--buffer-mib": (512, "kernel buffer of the capture"),
            "--timeout-s": (300.0, "for the workload"),
            "--env": ([str], "K=V: variables of the nodes"),
        },
        smallest="--workload array:400:100 --workers 1 --out {folder}",
        needs=("root", "ip", "tcpdump", "ethtool"),
    )

NODE = Path(__file__).parent / "support" / "wire_node.py"
NET = "10.99.7"  # the client is .115, the scheduler .116, workers from .117, as in the study
OFFLOADS = ["tso", "off", "gso", "off", "gro", "off"]
Process = subprocess.Popen[bytes]


@dataclass
class Options:
    """How to build and capture a cluster.

    Attributes:
        out: folder for the capture, logs and counts.
        workload: see ``wire_node.submit``.
        python: interpreter with the version of distributed to run.
        workers: number of workers.
        threads: threads per worker.
        protocol: ``tcp``, ``tls`` or ``ws``.
        mtu: disable offloads, so that frames are at most as large as the MTU.
        snaplen: bytes captured of each packet.
        buffer_mib: kernel buffer of the capture.
        timeout_s: end the workload after this time.
        env: environment of the nodes.
        interface: interface to capture on, in the namespace of the bridge.
        filter: filter of the capture, empty for everything.
    """

    out: Path
    workload: str = "array:2000:500"
    python: str = sys.executable
    workers: int = 3
    threads: int = 2
    protocol: str = "tcp"
    mtu: bool = False
    snaplen: int = 262144
    buffer_mib: int = 512
    timeout_s: float = 300
    env: dict[str, str] = field(default_factory=dict)
    interface: str = "br0"
    filter: str = ""


def sh(*argv: str) -> str:
    """Run a command and return its output; raise an error if it fails."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


class Cluster:
    """Namespaces on a bridge, the nodes in them, and tcpdump on the bridge.

    Attributes:
        options: how to build it.
        nodes: name of each node -> its address.
        listen: name of a node -> the address it listens on, if it is another one.
        contact: name of a node -> host and port at which it reaches the scheduler, if they are others.
        processes: name of each node -> its process.
        tag: prefix of the namespaces.
    """

    def __init__(self, options: Options, tag: str = "") -> None:
        names = ["client", "scheduler", *(f"worker-{i + 1}" for i in range(options.workers))]
        self.options = options
        self.nodes = {name: f"{NET}.{115 + i}" for i, name in enumerate(names)}
        self.listen: dict[str, str] = {}
        self.contact: dict[str, str] = {}
        self.processes: dict[str, Process] = {}
        self.tag = tag or f"wire{os.getpid()}"
        self.switch = f"{self.tag}-switch"

    def namespace(self, node: str) -> str:
        return f"{self.tag}-{node}"

    def port(self, node: str) -> str:
        """Return the name of a node's port on the bridge."""
        return f"p{list(self.nodes).index(node)}"

    def run_in(self, node: str, *argv: str) -> str:
        """Run a command in the namespace of a node; ``switch`` is the namespace of the bridge."""
        return sh("ip", "netns", "exec", self.namespace(node), *argv)

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Create a learning bridge and one namespace per node."""
        names = [self.switch, *map(self.namespace, self.nodes)]
        try:
            for name in names:
                sh("ip", "netns", "add", name)
            sh("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
            sh("ip", "-n", self.switch, "link", "set", "br0", "up")
            for node, address in self.nodes.items():
                self._attach(node, address)
            yield
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _attach(self, node: str, address: str) -> None:
        """Connect a node to the bridge. Without offloads, frames have the size that they have on a wire."""
        namespace, port = self.namespace(node), self.port(node)
        link = ["ip", "-n", self.switch, "link"]
        sh(*link, "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        sh(*link, "set", port, "master", "br0", "up")
        sh("ip", "-n", namespace, "link", "set", "lo", "up")
        sh("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        sh("ip", "-n", namespace, "link", "set", "eth0", "up")
        sh("ip", "-n", namespace, "route", "add", "default", "dev", "eth0")
        if self.options.mtu:
            self.run_in(node, "ethtool", "-K", "eth0", *OFFLOADS)
            self.run_in("switch", "ethtool", "-K", port, *OFFLOADS)

    def start(self, node: str, argv: list[str], log: str, **env: str) -> Process:
        """Start a process in the namespace of a node, with its output in a file."""
        with (self.options.out / log).open("wb") as out:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.namespace(node), *argv],
                stdout=out, stderr=out, cwd=self.options.out, env={**os.environ, **env},
            )  # fmt: skip

    def start_tcpdump(self) -> Process:
        options = self.options
        buffer = ["-B", str(options.buffer_mib * 1024), "-s", str(options.snaplen), "-n"]
        dump = ["nice", "-n", "-15", "tcpdump", "-i", options.interface, *buffer]
        dump += ["-w", str(options.out / "capture.pcap"), *([options.filter] if options.filter else [])]
        process = self.start("switch", dump, "tcpdump.log")
        time.sleep(0.5)
        return process

    def start_node(self, node: str, *arguments: str) -> Process:
        """Start the scheduler, a worker or the client."""
        options, role = self.options, node.split("-")[0]
        contact = self.contact.get(node, f"{self.nodes['scheduler']}:8786")
        address = f"{options.protocol}://{contact}"
        env = {
            "WIRE_WORKERS": str(options.workers),
            "WIRE_THREADS": str(options.threads),
            "OMP_NUM_THREADS": "1",
            "WIRE_HOST": self.listen.get(node, self.nodes[node]),
            "WIRE_NAME": node,
            **options.env,
        }
        if options.protocol == "tls":
            env |= {"WIRE_TLS": str(options.out), "SSLKEYLOGFILE": str(options.out / "keys.log")}
        counts = str(options.out / f"{node}.json")
        argv = [options.python, str(NODE), role, address, counts, *arguments]
        self.processes[node] = self.start(node, argv, f"{node}.log", **env)
        return self.processes[node]

    def start_cluster(self) -> None:
        """Start the scheduler and the workers."""
        if self.options.protocol == "tls":
            certificate(self.options.out)
        for node in self.nodes:
            if node != "client":
                self.start_node(node)
                time.sleep(2.0 if node == "scheduler" else 0)

    def stop_cluster(self) -> None:
        """Stop all nodes together, the scheduler first, to read its counters of open streams."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            stop(process)


def stop(process: Process, sig: int = signal.SIGTERM, patience_s: float = 8) -> None:
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
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    sh("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=dask", *files)


def capture(options: Options) -> dict[str, object]:
    """Run the cluster and its workload under tcpdump; return the counts of the nodes."""
    cluster = Cluster(options)
    with cluster.network():
        dumper = cluster.start_tcpdump()
        try:
            cluster.start_cluster()
            client = cluster.start_node("client", options.workload)
            if client.wait(options.timeout_s):
                raise RuntimeError(f"the client failed: {options.out / 'client.log'}")
            time.sleep(0.3)
        finally:
            cluster.stop_cluster()
            time.sleep(1.5)  # the kernel delivers packets up to a second late
            stop(dumper, signal.SIGINT)
    return {name: json.loads((options.out / f"{name}.json").read_text()) for name in cluster.nodes}


def main(args: Namespace) -> None:
    """Make a capture, and store the counts of its nodes."""
    del args.smallest
    env = dict(word.split("=", 1) for word in args.env)
    options = Options(**{**vars(args), "env": env, "protocol": args.protocol or "tcp"})
    options.out.mkdir(parents=True, exist_ok=True)
    truth = capture(options)
    (options.out / "truth.json").write_text(
        json.dumps({"workload": options.workload, "nodes": truth}, indent=1)
    )


if __name__ == "__main__":
    main(ARGUMENTS)
