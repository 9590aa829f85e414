"""``dasklab minipve``: the local endpoint's verbs. Also ``python -m minipve``."""

from __future__ import annotations

import os
from pathlib import Path

import click
from dasklab.path_types import OutputFile
from dasklab.paths import anchor_environment
from dasklab.terminal import Group

from minipve import cluster, launch, state_folder
from minipve.paths import Paths

MANAGEMENT = "10.77.0.1/24"


instance_option = click.option(
    "--instance",
    default="dasklab",
    show_default=True,
    help="Which instance; each has its own state and network.",
)
pool_option = click.option("--pool", help="The pool of the lab's token.  [default: the instance's name]")
management_option = click.option(
    "--management",
    default=MANAGEMENT,
    show_default=True,
    help="The node's address on vmbr0 of a fresh instance.",
)
nodes_option = click.option(
    "--nodes",
    type=click.IntRange(1, cluster.MOST),
    help="Nodes of the cluster that a fresh instance plays: pve, pve2, pve3 ...  [default: as it has, or 1]",
)
delay_option = click.option(
    "--unauthorized-delay", type=float, default=3.0, show_default=True, help="Seconds before a 401 (PVE: 3)."
)


@click.group(cls=Group)
def minipve() -> None:
    """The local endpoint: speaks the Proxmox VE API and runs QEMU, in a network of its own.

    \b
    dasklab minipve serve --detach     start it (again: no harm)
    dasklab minipve status             where it is, what runs
    dasklab minipve stop --purge       end machines, endpoint and network; forget the state
    """
    anchor_environment()


def _options(instance: str, pool: str | None, management: str, delay: float) -> list[str]:
    words = ["--instance", instance, "--management", management, "--unauthorized-delay", str(delay)]
    return [*words, "--pool", pool or instance]


@minipve.command()
@click.option("--detach", is_flag=True, help="Go to the background once the endpoint answers.")
@instance_option
@pool_option
@management_option
@delay_option
@nodes_option
@click.option("--ready-fd", type=int, hidden=True)
def serve(
    detach: bool,
    instance: str,
    pool: str | None,
    management: str,
    unauthorized_delay: float,
    nodes: int | None,
    ready_fd: int | None,
) -> None:
    """Start the endpoint, or find it running already. Ctrl-C ends the endpoint, never its machines."""
    paths, options = Paths.of(instance), _options(instance, pool, management, unauthorized_delay)
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
            f"  dasklab minipve stop --instance {instance}"
        )


@minipve.command(hidden=True)
@click.option("--fd", type=int, required=True)
@click.option("--lock-fd", type=int, required=True)
@click.option("--ready-fd", type=int)
@instance_option
@pool_option
@management_option
@delay_option
def run(
    fd: int,
    lock_fd: int,
    ready_fd: int | None,
    instance: str,
    pool: str | None,
    management: str,
    unauthorized_delay: float,
) -> None:
    """Serve, inside the namespace: what ``serve`` becomes."""
    from minipve import daemon

    os.set_inheritable(fd, False)
    os.set_inheritable(lock_fd, False)
    daemon.run(Paths.of(instance), fd, ready_fd, pool or instance, management, unauthorized_delay)


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
    for further in paths.further:
        click.echo(f"node      {further}: {'off' if paths.of_node(further).down.exists() else 'on'}")
    if not held:
        click.echo("network   nobody holds it: dasklab minipve serve --detach")
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
    "--output", type=OutputFile(in_folder=True), help="Also write it to a file, or into a directory."
)
def image(instance: str, container: bool, only_path: bool, output: Path | None) -> None:
    """Build the guests' images (one for machines, one for containers) unless they are there; print a path.

    Both do on any Proxmox VE too: name the file of --output in the inventory's proxmox_image, and
    `dasklab up` uploads it.
    """
    from minipve import progress
    from minipve.image import golden as images

    paths = Paths.of(instance)
    path: Path = (images.template_path if container else images.image_path)(paths)
    if not only_path and not path.exists():
        images.build(paths, progress.terminal())
    click.echo(str(images.export(path, output) if output else path))


@minipve.command()
@instance_option
def check(instance: str) -> None:
    """Say what this machine lacks for the endpoint, and the line that mends it."""
    from minipve import process
    from minipve.image import golden
    from minipve.lxc import commands
    from minipve.network import namespace
    from minipve.qemu import accel

    paths = Paths.of(instance)
    process.need(*sorted(process.PACKAGES))
    namespace.require_tun()
    click.echo("ok    programs and /dev/net/tun are there")
    built = golden.image_path(paths).exists()
    click.echo(f"ok    guests' image: {'built' if built else 'not built yet, which takes minutes once'}")
    found = accel.probe(paths)
    click.echo(f"ok    accelerator {found.name}: {found.reason}")
    if found.name == "tcg":
        click.echo(
            "--    machines are emulated: a tenth of native speed; not so: dasklab up --guests container"
        )
    if lost := namespace.lost_impairments():
        click.echo(f"--    containers: {lost}")
    lacking = commands.lacking()
    click.echo(
        f"{'--' if lacking else 'ok'}    containers: {lacking or 'they can run here, unprivileged too'}"
    )
