"""The command ``minipve``: start, inspect and stop an endpoint, and build the guests' image."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

import click

from minipve.base.errors import UserError
from minipve.base.paths import INSTANCE, Paths
from minipve.endpoint import control, setup
from minipve.endpoint.setup import Address
from minipve.endpoint.terminal import Group
from minipve.guests import power
from minipve.node import members

MANAGEMENT = "10.77.0.1/24"


instance_option = click.option(
    "--instance",
    default=INSTANCE,
    show_default=True,
    help="Name of the instance. Each has its own state and network.",
)
management_option = click.option(
    "--management",
    default=MANAGEMENT,
    show_default=True,
    help="Address of a new instance's node on vmbr0.",
)
nodes_option = click.option(
    "--nodes",
    type=click.IntRange(1, members.MAX_NODES),
    help="Number of nodes of a new instance: pve, pve2, pve3 ...  [default: 1]",
)
delay_option = click.option(
    "--unauthorized-delay", type=float, default=3.0, show_default=True, help="Delay of every 401 in seconds."
)


def _require_packages() -> None:
    """Check Python and its packages before anything else.

    Raises:
        UserError: Python is too old, or a package is missing.
    """
    if sys.version_info < (3, 11):
        raise UserError("minipve needs Python 3.11 or newer")
    if missing := [
        name for name in ("aiohttp", "cryptography", "trustme") if importlib.util.find_spec(name) is None
    ]:
        raise UserError(f"not installed: {', '.join(missing)}", "pip install 'dasklab[minipve]'")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="MINIPVE_STATE",
    help="State folder of the instance.  [default: ~/.local/state/minipve/INSTANCE]",
)
@click.option(
    "--requirements",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="MINIPVE_REQUIREMENTS",
    help="pip requirements file: packages of the guests' image, in /opt/dask.",
)
def minipve(state: Path | None, requirements: Path | None) -> None:
    """Run a Proxmox VE API on this machine, with real QEMU and LXC guests in their own network.

    \b
    minipve check              show what this machine lacks
    minipve serve --detach     start an endpoint unless it runs
    minipve status             show its address and its running guests
    minipve stop --purge       end guests, endpoint and network, and remove the state
    """
    _require_packages()
    for name, path in (("MINIPVE_STATE", state), ("MINIPVE_REQUIREMENTS", requirements)):
        if path:
            os.environ[name] = str(path.absolute())  # child processes need them, too
    if cache := os.environ.get("MINIPVE_CACHE"):
        os.environ["MINIPVE_CACHE"] = str(Path(cache).absolute())


def _options(instance: str, management: str, delay: float) -> list[str]:
    return ["--instance", instance, "--management", management, "--unauthorized-delay", str(delay)]


@minipve.command()
@click.option("--detach", is_flag=True, help="Return when the endpoint answers, and leave it running.")
@instance_option
@management_option
@delay_option
@nodes_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the endpoint.  [default: the port of the previous start, at first a free one]",
)
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--allow-remote", is_flag=True, help="Let --listen take an address that other machines reach.")
@click.option("--ready-fd", type=int, hidden=True)
def serve(
    detach: bool,
    instance: str,
    management: str,
    unauthorized_delay: float,
    nodes: int | None,
    port: int | None,
    listen: str,
    allow_remote: bool,
    ready_fd: int | None,
) -> None:
    """Start the endpoint unless it runs. Ctrl-C ends the endpoint, but not its guests."""
    address = Address.parse(listen, port, allow_remote)
    paths, options = Paths.of(instance), _options(instance, management, unauthorized_delay)
    setup.claim(paths)
    members.choose(paths, nodes)
    if not detach:
        control.serve(paths, options, address, ready_fd)
    started = control.detach(paths, options, address)
    click.echo(f"{'started' if started else 'running'}: {control.facts(paths)['url']}  ({paths.state})")
    if not started and control.outdated(paths):
        click.echo(
            "  It runs code from before the last update. To restart it, while all guests keep running:\n"
            f"  kill {control.pid(paths)}; minipve --state {paths.state} serve --detach"
        )


@minipve.command(hidden=True)
@click.option("--fd", type=int, required=True)
@click.option("--lock-fd", type=int, required=True)
@click.option("--ready-fd", type=int)
@instance_option
@management_option
@delay_option
def run(
    fd: int,
    lock_fd: int,
    ready_fd: int | None,
    instance: str,
    management: str,
    unauthorized_delay: float,
) -> None:
    """Serve inside the network namespace. ``serve`` executes this command."""
    from minipve.endpoint import daemon

    os.set_inheritable(fd, False)
    os.set_inheritable(lock_fd, False)
    daemon.run(Paths.of(instance), fd, ready_fd, management, unauthorized_delay)


@minipve.command()
@instance_option
def status(instance: str) -> None:
    """Show the endpoint's address and the running guests. Exit status 1 if it does not answer."""
    from minipve.network import namespace

    paths = Paths.of(instance)
    machines, containers = control.all_machines(paths), control.all_containers(paths)
    answers = control.is_running(paths) and control.answers(paths)
    has_network = namespace.find(paths) is not None or not (answers or machines or containers)
    click.echo(f"endpoint   {control.facts(paths)['url'] if answers else 'not running'}")
    click.echo(f"machines   {_guest_list(machines)}")
    click.echo(f"containers {_guest_list(containers)}")
    for name in paths.additional_nodes:
        click.echo(f"node       {name}: {'off' if paths.of_node(name).down.exists() else 'on'}")
    if not has_network:
        click.echo("network    its holder process has ended; run: minipve serve --detach")
    click.echo(f"state      {paths.state}")
    click.echo(f"log        {paths.endpoint_log}")
    if not (answers and has_network):
        raise click.exceptions.Exit(1)


def _guest_list(pids: dict[int, int]) -> str:
    return ", ".join(f"{vmid} (pid {pid})" for vmid, pid in pids.items()) or "none running"


@minipve.command()
@instance_option
def env(instance: str) -> None:
    """Print shell variables for clients. Use it like this: eval "$(minipve env)"."""
    paths = Paths.of(instance)
    if not control.is_running(paths):
        raise UserError(f"no endpoint runs in {paths.state}", "minipve serve --detach")
    for name, value in setup.variables(control.facts(paths), paths.root_password.read_text().strip()).items():
        click.echo(f"export {name}={shlex.quote(value)}")


@minipve.command()
@instance_option
@click.argument("name")
@click.argument("state", type=click.Choice(["off", "on"]))
def node(instance: str, name: str, state: str) -> None:
    """Switch an additional node off or on. Off ends its guests at once."""
    paths = Paths.of(instance)
    (power.switch_off if state == "off" else power.switch_on)(paths, name)
    click.echo(f"{name} is {state}")


@minipve.command()
@instance_option
@click.option("--purge", is_flag=True, help="Also remove the state: disks, users, tasks.")
def stop(instance: str, purge: bool) -> None:
    """End the guests, the endpoint and their network."""
    paths = Paths.of(instance)
    existed = paths.state.exists()
    ran = control.stop(paths, purge)
    click.echo("stopped" if ran or (purge and existed) else "nothing to stop")


@minipve.command()
@instance_option
@click.option("--container", is_flag=True, help="Print the container template's path.")
@click.option("--path", "only_path", is_flag=True, help="Print the path without building.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, writable=True),
    help="Also copy it to this file or folder.",
)
def image(instance: str, container: bool, only_path: bool, output: Path | None) -> None:
    """Build the guests' images unless they exist.

    The images are a disk for machines and a template for containers. Both also work on a real Proxmox VE.
    """
    from minipve.base import process
    from minipve.guests.lxc import limits
    from minipve.image import golden as images

    paths = Paths.of(instance)
    path: Path = (images.template_path if container else images.image_path)(paths)
    if output:
        images.export_file(path, output)  # fail before the build, which takes minutes
    if not only_path and not path.exists():
        limits.require_own_range()
        images.build(paths, process.terminal())
    click.echo(str(images.export(path, output) if output else path))


@minipve.command()
@instance_option
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(["vm", "container"]),
    multiple=True,
    help="Check only what guests of this kind need; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(instance: str, kinds: tuple[str, ...], as_json: bool) -> None:
    """Show what this machine lacks, and how to install it. Exit status 1 if minipve cannot run."""
    from minipve.endpoint import check as machine_check

    report = machine_check.check(Paths.of(instance), kinds)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=1))
    else:
        for line in report.lines:
            click.echo(line)
        if report.packages:
            click.echo(f"\napt install {' '.join(report.packages)}")
    if not report.usable:
        raise click.exceptions.Exit(1)
