"""The programs and libraries from package registries that benchmarks/minipve_clients.py runs.

Names in braces stand for variables of ``minipve env``; ``{ADDRESS}`` is host and port. The endpoint has two
nodes, a stopped VM named "client" and a container named "box".
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """A client from PyPI.

    Attributes:
        packages: what pip installs; the first one has the version of interest.
        commands: command line -> pattern of its output. Programs are those of the client's environment.
        files: path below its home folder -> contents.
        variables: additional variables of its environment.
    """

    name: str
    packages: tuple[str, ...]
    commands: dict[tuple[str, ...], str]
    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


_PROXMOXER = """
import os
from proxmoxer import ProxmoxAPI
env = os.environ
api = ProxmoxAPI(f"{env['PROXMOX_HOST']}:{env['PROXMOX_PORT']}", user=env["PROXMOX_USER"],
                 password=env["PROXMOX_PASSWORD"], verify_ssl=env["PROXMOX_CA_FILE"])
vmid = api.cluster.nextid.get()
task = api.nodes("pve").qemu.post(vmid=vmid, name="created", memory=32)
while (status := api.nodes("pve").tasks(task).status.get())["status"] == "running":
    pass
assert status["exitstatus"] == "OK", status
assert [vm["name"] for vm in api.nodes("pve").qemu.get() if str(vm["vmid"]) == vmid] == ["created"]
assert api.version.get()["release"] == "9.1"
print("done")
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
assert 'pve_up{id="qemu/100"} 0.0' in metrics, metrics
print(metrics)
"""
_PRMXCTRL = """
import asyncio, os
from prmxctrl import ProxmoxClient
env = os.environ
async def main():
    async with ProxmoxClient(
        host=env["PROXMOX_URL"], user=env["PROXMOX_USER"],
        token_name=env["PROXMOX_TOKEN_ID"], token_value=env["PROXMOX_TOKEN_SECRET"], verify_ssl=False,
    ) as client:
        print(await client.nodes.list(), await client.nodes("pve").qemu.list())
asyncio.run(main())
"""
_TOKEN = "{PROXMOX_USER}!{PROXMOX_TOKEN_ID}"
PROGRAMS = (
    Program("proxmoxer, oldest", ("proxmoxer==1.1.1", "requests"), {("python", "-c", _PROXMOXER): "done"}),
    Program("proxmoxer, newest", ("proxmoxer", "requests"), {("python", "-c", _PROXMOXER): "done"}),
    Program(
        "prometheus-pve-exporter",
        ("prometheus-pve-exporter",),
        {("python", "-c", _EXPORTER): r'pve_version_info{.*release="9.1"'},
    ),
    Program(
        "prometheus-pve-sd",
        ("prometheus-pve-sd",),
        {("prometheus-pve-sd", "--no-service", "-o", "targets.json"): "", ("cat", "targets.json"): r"\["},
        variables={
            "PROMETHEUS_PVE_SD_PVE_SERVER": "{ADDRESS}",
            "PROMETHEUS_PVE_SD_PVE_USER": "{PROXMOX_USER}",
            "PROMETHEUS_PVE_SD_PVE_TOKEN_NAME": "{PROXMOX_TOKEN_ID}",
            "PROMETHEUS_PVE_SD_PVE_TOKEN_VALUE": "{PROXMOX_TOKEN_SECRET}",
            "PROMETHEUS_PVE_SD_PVE_VERIFY_SSL": "false",
        },
    ),
    Program(
        "proxcli",
        ("proxcli",),
        {
            ("proxcli", "vm", "list"): r'"name": "client"',
            ("proxcli", "vm", "config", "100"): "memory",
            ("proxcli", "storage", "list"): "local",
        },
        {
            ".config/proxmox-cli/credentials.json": '{"url": "{PROXMOX_URL}", "username": "{PROXMOX_USER}", '
            '"auth_method": "api_token", "api_token_id": "{PROXMOX_TOKEN_ID}", '
            '"api_token_secret": "{PROXMOX_TOKEN_SECRET}", "verify_tls": false}'
        },
    ),
    Program(
        "proxctl",
        ("proxctl",),
        {
            ("proxctl", "--insecure", "vm", "list", "--json"): '"client"',
            ("proxctl", "--insecure", "vm", "config", "100"): "memory",
            ("proxctl", "--insecure", "health"): "",
        },
        variables={
            "PROXMOX_HOST": "{ADDRESS}",
            "PROXMOX_TOKEN": _TOKEN + "={PROXMOX_TOKEN_SECRET}",
            "PROXMOX_NODE": "pve",
        },
    ),
    Program(
        "proxmox-cli",
        ("proxmox-cli",),
        {
            ("proxmox-cli", "vm", "list"): "client",
            ("proxmox-cli", "user", "list"): "root@pam",
            ("proxmox-cli", "storage", "list"): "local",
        },
        {
            ".config/proxmox-cli/config.yaml": "proxmox: {host: '{ADDRESS}', user: '{PROXMOX_USER}', "
            "token_name: '{PROXMOX_TOKEN_ID}', token_value: '{PROXMOX_TOKEN_SECRET}', verify_ssl: false}"
        },
    ),
    Program(
        "pxinv",
        ("pxinv",),
        {
            ("pxinv", "list", "--output", "json"): '"client"',
            ("pxinv", "ansible-inventory"): "client",
            ("pxinv", "snapshot", "create", "100", "pxinv"): "",
        },
        variables={
            "PXINV_HOST": "{ADDRESS}",
            "PXINV_TOKEN_NAME": "{PROXMOX_TOKEN_ID}",
            "PXINV_TOKEN_VALUE": "{PROXMOX_TOKEN_SECRET}",
            "PXINV_VERIFY_SSL": "false",
        },
    ),
    Program(
        "proxmox-info",
        ("proxmox-info",),
        {("proxmox-info", "--filter", "all", "--no-verify"): "local"},
        {
            "proxmox_info.yml": "host: '{ADDRESS}'\nuser: '{PROXMOX_USER}'\n"
            "password: '{PROXMOX_PASSWORD}'\nverify_ssl: false\n"
        },
    ),
    Program("prmxctrl", ("prmxctrl",), {("python", "-c", _PRMXCTRL): "client"}),
    Program(
        "pmox",
        ("pmox",),
        {
            ("pmox", "vm", "list"): "client",
            ("pmox", "health"): "",
            ("pmox", "vm", "describe", "100"): "client",
        },
        variables={"PROXMOX_TOKEN_ID": _TOKEN, "PROXMOX_VERIFY_SSL": "false"},
    ),
    Program(
        "pve-cli",
        ("pve-cli",),
        {("pve-cli", "-c", "config.toml", "cluster", "list"): "pve"},
        {
            "config.toml": '[defaults]\nendpoint = "here"\n\n[endpoint.here]\nhost = "{ADDRESS}"\n'
            'user = "root"\nrealm = "pam"\ntoken_name = "{PROXMOX_TOKEN_ID}"\n'
            'token_secret = "{PROXMOX_TOKEN_SECRET}"\nverify_ssl = false\n'
        },
    ),
    Program(
        "pvecontrol",
        ("pvecontrol",),
        {
            ("pvecontrol", "-c", "here", "vm", "list"): "client",
            ("pvecontrol", "-c", "here", "node", "list"): "pve",
            ("pvecontrol", "-c", "here", "storage", "list"): "local",
            ("pvecontrol", "-c", "here", "status"): "",
        },
        {
            ".config/pvecontrol/config.yaml": "clusters:\n- {name: here, host: '{ADDRESS}', "
            "user: '{PROXMOX_USER}', token_name: '{PROXMOX_TOKEN_ID}', "
            "token_value: '{PROXMOX_TOKEN_SECRET}', ssl_verify: false}\n"
        },
    ),
    Program(
        "proxlb, dry run",
        ("proxlb",),
        {("python", "-m", "proxlb", "--config", "proxlb.yaml", "--best-node"): "pve"},
        {
            "proxlb.yaml": "proxmox_api: {hosts: ['{ADDRESS}'], user: '{PROXMOX_USER}', "
            "token_id: '{PROXMOX_TOKEN_ID}', token_secret: '{PROXMOX_TOKEN_SECRET}', "
            "ssl_verification: false, timeout: 10}\n"
            "proxmox_cluster: {maintenance_nodes: [], ignore_nodes: [], overprovisioning: true}\n"
            "balancing: {enable: true, balance_types: ['vm', 'ct'], method: memory, mode: used}\n"
        },
    ),
)
NODE_PROGRAM = """
const { default: proxmoxApi } = require("proxmox-api");
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
const proxmox = proxmoxApi({ host: process.env.PROXMOX_HOST, port: Number(process.env.PROXMOX_PORT),
    tokenID: process.env.PROXMOX_USER + "!" + process.env.PROXMOX_TOKEN_ID,
    tokenSecret: process.env.PROXMOX_TOKEN_SECRET });
(async () => {
    const nodes = await proxmox.nodes.$get();
    if (nodes[0].node !== "pve") throw new Error(JSON.stringify(nodes));
    const vms = await proxmox.nodes.$("pve").qemu.$get({ full: true });
    if (!vms.some((vm) => vm.name === "client")) throw new Error(JSON.stringify(vms));
})().catch((error) => { console.error(error); process.exit(1); });
"""
"""A program for the npm package proxmox-api."""
