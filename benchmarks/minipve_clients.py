"""Run third-party clients of Proxmox VE against minipve, each in its own environment, and print a table.

    .venv/bin/python benchmarks/minipve_clients.py                     # all of them, about 2 minutes
    .venv/bin/python benchmarks/minipve_clients.py --only proxmoxer

Each client ends with an assertion about minipve's answers. Environments are installed once, in ``--folder``.
The exit status is 1 if a client fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

TIMEOUT_S = 300


@dataclass(frozen=True)
class Result:
    name: str
    version: str
    succeeded: bool
    output: str

    @property
    def row(self) -> str:
        error = "" if self.succeeded else " ".join(self.output.split())[-300:]
        return f"| {self.name} | {self.version} | {'works' if self.succeeded else 'fails'} | {error} |"


@dataclass(frozen=True)
class Python:
    """A client from PyPI: what to install, and a program that uses it and ends with an assertion."""

    name: str
    packages: tuple[str, ...]
    program: str


_PROXMOXER = """
import os
from proxmoxer import ProxmoxAPI
env = os.environ
api = ProxmoxAPI(f"{env['PROXMOX_HOST']}:{env['PROXMOX_PORT']}", user=env["PROXMOX_USER"],
                 password=env["PROXMOX_PASSWORD"], verify_ssl=env["PROXMOX_CA_FILE"])
vmid = api.cluster.nextid.get()
task = api.nodes("pve").qemu.post(vmid=vmid, name="client", memory=32)
while (status := api.nodes("pve").tasks(task).status.get())["status"] == "running":
    pass
assert status["exitstatus"] == "OK", status
assert [vm["name"] for vm in api.nodes("pve").qemu.get() if str(vm["vmid"]) == vmid] == ["client"]
assert api.version.get()["release"] == "9.1"
"""
_EXPORTER = """
import os
from pve_exporter.collector import CollectorsOptions, collect_pve
env = os.environ
metrics = collect_pve(
    {"user": env["PROXMOX_USER"], "password": env["PROXMOX_PASSWORD"], "verify_ssl": False},
    f"{env['PROXMOX_HOST']}:{env['PROXMOX_PORT']}", True, True,
    CollectorsOptions(**dict.fromkeys(CollectorsOptions._fields, True)),
).decode()
assert 'pve_version_info{' in metrics and 'pve_up{id="node/pve"} 1.0' in metrics, metrics
"""
PYTHON = (
    Python("proxmoxer, oldest", ("proxmoxer==1.1.1", "requests"), _PROXMOXER),
    Python("proxmoxer, newest", ("proxmoxer", "requests"), _PROXMOXER),
    Python("prometheus-pve-exporter", ("prometheus-pve-exporter",), _EXPORTER),
)
_NODE = """
const { default: proxmoxApi } = require("proxmox-api");
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
const proxmox = proxmoxApi({ host: process.env.PROXMOX_HOST, port: Number(process.env.PROXMOX_PORT),
    tokenID: process.env.PROXMOX_USER + "!" + process.env.PROXMOX_TOKEN_ID,
    tokenSecret: process.env.PROXMOX_TOKEN_SECRET });
(async () => {
    const nodes = await proxmox.nodes.$get();
    if (nodes[0].node !== "pve") throw new Error(JSON.stringify(nodes));
    const vms = await proxmox.nodes.$("pve").qemu.$get({ full: true });
    if (!Array.isArray(vms)) throw new Error(JSON.stringify(vms));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@contextmanager
def endpoint(state: Path) -> Iterator[dict[str, str]]:
    """Start minipve, and yield the variables of `minipve env`."""
    minipve = [sys.executable, "-m", "minipve", "--state", str(state)]
    subprocess.run([*minipve, "serve", "--detach", "--unauthorized-delay", "0"], check=True)
    try:
        lines = subprocess.run([*minipve, "env"], check=True, capture_output=True, text=True).stdout
        pairs = (line.removeprefix("export ").partition("=") for line in lines.splitlines())
        yield {name: value.strip("'") for name, _, value in pairs}
    finally:
        subprocess.run([*minipve, "stop", "--purge"], check=True)


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """Return the folder with the programs of a virtual environment, which is created once."""
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", *packages], check=True)
        (folder / "ready").touch()
    return folder / "bin"


def run(command: Sequence[Any], variables: dict[str, str], folder: Path | None = None) -> tuple[bool, str]:
    """Run a client. Returns whether it succeeded, and its output."""
    result = subprocess.run(
        [str(word) for word in command], env=os.environ | variables, cwd=folder,
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return result.returncode == 0, result.stdout + result.stderr


def version(programs: Path, package: str) -> str:
    output = run([programs / "pip", "show", re.split("[=<>]", package)[0]], {})[1]
    match = re.search(r"^Version: (.+)$", output, re.MULTILINE)
    return match[1] if match else "?"


def python_client(client: Python, folder: Path, variables: dict[str, str]) -> Result:
    name = re.sub(r"\W+", "-", client.name)
    programs = environment(folder / name, client.packages)
    succeeded, output = run([programs / "python", "-c", client.program], variables)
    return Result(client.name, version(programs, client.packages[0]), succeeded, output)


def node_client(folder: Path, variables: dict[str, str]) -> Result:
    """Run the npm package proxmox-api."""
    place = folder / "npm"
    if not (place / "node_modules/proxmox-api").exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", place, "proxmox-api"], check=True)
    package = json.loads((place / "node_modules/proxmox-api/package.json").read_text())
    succeeded, output = run(["node", "-e", _NODE], variables, place)
    return Result("npm proxmox-api", package["version"], succeeded, output)


def clients(folder: Path, variables: dict[str, str]) -> dict[str, Callable[[], Result]]:
    python = {client.name: partial(python_client, client, folder, variables) for client in PYTHON}
    return {**python, "npm proxmox-api": partial(node_client, folder, variables)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache/minipve-clients")
    parser.add_argument("--only", default="", help="run only clients whose name contains this")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    with tempfile.TemporaryDirectory(prefix="minipve-clients-") as name, endpoint(Path(name)) as variables:
        print("| client | version | verdict | error |\n|---|---|---|---|")
        for title, client in clients(args.folder, variables).items():
            if args.only in title:
                result = client()
                failures += not result.succeeded
                print(result.row, flush=True)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
