"""The command ``minipve``: start, inspect and stop a local endpoint, and build its guests' image."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import click

from minipve import cluster, launch, state_folder
from minipve.paths import INSTANCE, Paths
from minipve.terminal import Group
from minipve.user_error import UserError

MANAGEMENT = "10.77.0.1/24"


instance_option = click.option(
    "--instance",
    default=INSTANCE,
    show_default=True,
    help="Which instance; each has its own state and network.",
)
management_option = click.option(
    "--management",
    default=MANAGEMENT,
    show_default=True,
    help="The node's address on vmbr0 of a fresh instance.",
)
nodes_option = click.option(
    "--nodes",
    type=click.IntRange(1, cluster.MAX_NODES),
    help="Nodes of the cluster that a fresh instance plays: pve, pve2, pve3 ...  [default: as it has, or 1]",
)
delay_option = click.option(
    "--unauthorized-delay", type=float, default=3.0, show_default=True, help="Seconds before a 401 (PVE: 3)."
)


def _require_packages() -> None:
    """Refuse to start half of the endpoint.

    Raises:
        UserError: Python is too old, or a package is missing.
    """
    if sys.version_info < (3, 11):
        raise UserError("minipve needs Python 3.11 or newer")
    if lacking := [
        name for name in ("aiohttp", "cryptography", "trustme") if importlib.util.find_spec(name) is None
    ]:
        raise UserError(f"not installed: {', '.join(lacking)}", "pip install 'dasklab[minipve]'")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="MINIPVE_STATE",
    help="Folder of the instance's state.  [default: the instance's name below the XDG state folder]",
)
@click.option(
    "--requirements",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="MINIPVE_REQUIREMENTS",
    help="pip requirements file: the guests' image carries these packages, in /opt/dask.",
)
def minipve(state: Path | None, requirements: Path | None) -> None:
    """A Proxmox VE API on this machine, with real QEMU and LXC guests in a network of their own.

    \b
    minipve serve --detach     start an endpoint; harmless if one is running
    minipve status             where it is, and which guests run
    minipve stop --purge       end guests, endpoint and network, and remove the state
    """
    _require_packages()
    for name, path in (("MINIPVE_STATE", state), ("MINIPVE_REQUIREMENTS", requirements)):
        if path:
            os.environ[name] = str(path.absolute())  # also for the processes that serve the endpoint
    if cache := os.environ.get("MINIPVE_CACHE"):
        os.environ["MINIPVE_CACHE"] = str(Path(cache).absolute())


def _options(instance: str, management: str, delay: float) -> list[str]:
    return ["--instance", instance, "--management", management, "--unauthorized-delay", str(delay)]


@minipve.command()
@click.option("--detach", is_flag=True, help="Go to the background once the endpoint answers.")
@instance_option
@management_option
@delay_option
@nodes_option
@click.option("--ready-fd", type=int, hidden=True)
def serve(
    detach: bool,
    instance: str,
    management: str,
    unauthorized_delay: float,
    nodes: int | None,
    ready_fd: int | None,
) -> None:
    """Start the endpoint, or find it running already. Ctrl-C ends the endpoint, never its machines."""
    paths, options = Paths.of(instance), _options(instance, management, unauthorized_delay)
    state_folder.claim(paths)
    cluster.choose(paths, nodes)
    if not detach:
        launch.serve(paths, options, ready_fd)
    started = launch.detach(paths, options)
    found = launch.facts(paths)
    click.echo(
        f"{'started' if started else 'running'}: https://{found['host']}:{found['port']}  ({paths.state})"
    )
    if not started and launch.outdated(paths):
        click.echo(
            f"  it runs code from before the last update; to take that up, while all guests run on:\n"
            f"  minipve --state {paths.state} stop"
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
    """Serve, inside the namespace: what ``serve`` becomes."""
    from minipve import daemon

    os.set_inheritable(fd, False)
    os.set_inheritable(lock_fd, False)
    daemon.run(Paths.of(instance), fd, ready_fd, management, unauthorized_delay)


@minipve.command()
@instance_option
def status(instance: str) -> None:
    """Say where the endpoint is, and which machines run. Exit code 1 when it does not answer."""
    from minipve.network import namespace

    paths = Paths.of(instance)
    found = launch.facts(paths)
    machines, containers = launch.all_machines(paths), launch.all_containers(paths)
    up = launch.is_running(paths) and launch.answers(paths)
    held = namespace.find(paths) is not None or not (up or machines or containers)
    click.echo(f"endpoint  https://{found['host']}:{found['port']}" if up else "endpoint  not running")
    click.echo(
        f"machines  {', '.join(f'{vmid} (pid {pid})' for vmid, pid in machines.items()) or 'none running'}"
    )
    if containers:
        click.echo(f"containers {', '.join(f'{vmid} (pid {pid})' for vmid, pid in containers.items())}")
    for further in paths.additional_nodes:
        click.echo(f"node      {further}: {'off' if paths.of_node(further).down.exists() else 'on'}")
    if not held:
        click.echo("network   nobody holds it: minipve serve --detach")
    click.echo(f"state     {paths.state}")
    click.echo(f"log       {launch.log_file(paths)}")
    if not (up and held):
        raise click.exceptions.Exit(1)


@minipve.command()
@instance_option
@click.argument("name")
@click.argument("state", type=click.Choice(["off", "on"]))
def node(instance: str, name: str, state: str) -> None:
    """Switch a further node of the cluster off (its guests end at once), or on again."""
    paths = Paths.of(instance)
    (cluster.switch_off if state == "off" else cluster.switch_on)(paths, name)
    click.echo(f"{name} is {state}")


@minipve.command()
@instance_option
@click.option("--purge", is_flag=True, help="Remove the state: machines' disks, users, tasks.")
def stop(instance: str, purge: bool) -> None:
    """End the machines, the endpoint and their network."""
    paths = Paths.of(instance)
    there = paths.state.exists()
    ran = launch.stop(paths, purge)
    click.echo("stopped" if ran or (purge and there) else "nothing to stop")


@minipve.command()
@instance_option
@click.option("--container", is_flag=True, help="The containers' template, in place of the machines' disk.")
@click.option("--path", "only_path", is_flag=True, help="Only print where the image is or will be.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, writable=True),
    help="Also write it to a file, or into a directory.",
)
def image(instance: str, container: bool, only_path: bool, output: Path | None) -> None:
    """Build the guests' images (one for machines, one for containers) unless they are there; print a path.

    Both work on a real Proxmox VE too.
    """
    from minipve import progress
    from minipve.image import golden as images

    paths = Paths.of(instance)
    path: Path = (images.template_path if container else images.image_path)(paths)
    if output:
        images.export_file(path, output)  # refuse it before the minutes of work, not after them
    if not only_path and not path.exists():
        images.build(paths, progress.terminal())
    click.echo(str(images.export(path, output) if output else path))


@minipve.command()
@instance_option
def check(instance: str) -> None:
    """Say what this machine lacks for the endpoint, and the line that mends it."""
    from minipve import process
    from minipve.image import golden
    from minipve.lxc import support
    from minipve.network import namespace
    from minipve.qemu import accel

    paths = Paths.of(instance)
    process.need(*sorted(process.PACKAGES))
    namespace.require_tun()
    click.echo("ok    programs and /dev/net/tun are there")
    image = "built" if golden.image_path(paths).exists() else "not built yet, which takes minutes once"
    click.echo(f"ok    guests' image: {image}; cache: {paths.cache}")
    found = accel.probe(paths)
    click.echo(f"ok    accelerator {found.name}: {found.reason}")
    if found.name == "tcg":
        click.echo(
            "--    machines are emulated, at about a tenth of native speed; containers run at full speed"
        )
    if lost := namespace.missing_impairments():
        click.echo(f"--    containers: {lost}")
    lacking = support.problem()
    click.echo(
        f"{'--' if lacking else 'ok'}    containers: {lacking or 'they can run here, unprivileged too'}"
    )
