"""The command ``dasklab``: thin verbs over the playbooks and the library.

Sub-commands are imported when they are used, so that ``--help`` and short commands stay quick.
"""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lab.commands.options import inventory_option, results_option
from lab.errors import LabError
from lab.machines import ssh as ssh_to
from lab.machines.inventory import Inventory
from lab.running import playbook

if TYPE_CHECKING:
    from lab.machines.preflight import Finding

UNREACHABLE = 4  # exit code of ansible-playbook when a machine does not answer
ELSEWHERE = {
    "run": ("lab.commands.experiments:run", "Run an experiment: its trials, in shuffled order, resumable."),
    "results": ("lab.commands.experiments:results", "List, show and compare runs."),
    "report": ("lab.commands.experiments:report", "Write the report of a run as one HTML page."),
    "wire": ("lab.wire.cli:wire", "Say what Dask said, from a capture file."),
    "minipve": ("lab.minipve.cli:minipve", "The local endpoint: serve, status, stop."),
}


class Commands(click.Group):
    """A group whose larger parts live in other modules and are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names: those defined here, then those elsewhere."""
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the part that ``name`` belongs to."""
        if name not in ELSEWHERE:
            return super().get_command(ctx, name)
        module, _, attribute = ELSEWHERE[name][0].partition(":")
        loaded: click.Command = getattr(importlib.import_module(module), attribute)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names with one line each, without importing anything."""
        here = [(n, c.get_short_help_str(80)) for n, c in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(here + [(n, text) for n, (_, text) in ELSEWHERE.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Show a user's mistake as one line, never as a traceback."""
        try:
            return super().invoke(ctx)
        except LabError as error:
            raise Failure(str(error)) from None


class Failure(click.ClickException):
    """A LabError on its way to the terminal."""

    def show(self, file: Any = None) -> None:
        """Print the line and, indented below it, what to do."""
        click.secho(f"dasklab: {self.message}", fg="red", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dasklab", prog_name="dasklab")
def main() -> None:
    """What does the network do to my Dask cluster?

    A lab of five machines (a client that also captures, a scheduler, three workers) on Proxmox VE or on
    this machine, that answers with numbers.

    \b
    dasklab doctor          what is missing here, and the line that mends it
    dasklab up              build the lab and measure a baseline
    dasklab run nic_matrix  an experiment
    dasklab report RUN      its answers, as a page
    dasklab destroy         leave nothing behind
    """


@main.command()
@inventory_option
def plan(inventory: Path) -> None:
    """Show what `up` would do to the machines; change nothing."""
    Inventory(inventory)
    _finish(
        playbook.run(
            "provision.yml", inventory, options=["--check", "--diff", "--tags", "endpoint,key,machines"]
        )
    )


@main.command()
@inventory_option
@results_option
@click.option("--check", is_flag=True, help="Only say what would be done, on the machines too.")
@click.option("--diff", is_flag=True, help="Show each difference.")
@click.option("--only", type=click.Choice(["provision", "configure"]), help="Only this part.")
def up(inventory: Path, root: Path, check: bool, diff: bool, only: str | None) -> None:
    """Build the lab, or bring it to what the inventory says, and measure a baseline once."""
    lab = Inventory(inventory)
    options = [flag for flag, on in (("--check", check), ("--diff", diff)) if on]
    if not check:
        _endpoint_ready(lab)
    book = f"{only}.yml" if only else "lab.yml"
    _finish(playbook.run(book, inventory, options=[*options, "--skip-tags", "baseline"]))
    if not only and not check:
        _baseline(lab, root)


@main.command()
@inventory_option
@results_option
def baseline(inventory: Path, root: Path) -> None:
    """Measure the lab as it is, once; say what was measured."""
    _baseline(Inventory(inventory), root)


@main.command()
@inventory_option
def status(inventory: Path) -> None:
    """Say what is there: machines, links, cluster, captures."""
    Inventory(inventory)
    _finish(playbook.run("status.yml", inventory))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@inventory_option
def ssh(host: str, command: tuple[str, ...], inventory: Path) -> None:
    """Open a shell on HOST, or run COMMAND there.

    \b
    dasklab ssh scheduler
    dasklab ssh worker-1 -- tc -s qdisc show
    """
    argv = ssh_to.command(Inventory(inventory), host)
    sys.exit(subprocess.run([*argv, *command], check=False).returncode)


@main.command()
@inventory_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(inventory: Path, yes: bool) -> None:
    """Remove all that carries this lab's tag, and the endpoint that was started for it."""
    lab = Inventory(inventory)
    name = lab.optional(lab.hosts()[0], "lab_name")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the machines of lab {name!r}? Results are kept", abort=True)
    _finish(playbook.run("destroy.yml", inventory))


@main.command()
@inventory_option
def doctor(inventory: Path) -> None:
    """Say what is missing on this machine or this Proxmox VE, and the line that mends it."""
    from lab.machines.doctor import examine

    lab = Inventory(inventory)
    bad = 0
    if check := lab.optional(lab.hosts()[0], "endpoint_check"):
        bad += subprocess.run(check, check=False).returncode != 0
        _command(lab, "endpoint_start")
    for finding in examine(lab):
        bad += not finding.well
        _show(finding)
    sys.exit(1 if bad else 0)


def _baseline(lab: Inventory, root: Path) -> None:
    from lab.commands import baseline as measured

    run, fresh = measured.ensure(lab, root)
    click.echo("baseline: measured" if fresh else "baseline: found")
    measured.show(run)


def _show(finding: Finding) -> None:
    mark, colour = ("ok  ", "green") if finding.well else ("FAIL", "red")
    click.secho(f"{mark}  {finding.what}", fg=colour)
    for line in finding.mend:
        click.echo(f"      {line}")


def _endpoint_ready(lab: Inventory) -> None:
    """Start the endpoint and build its image here, where their progress can be seen."""
    _command(lab, "endpoint_start")
    host = lab.hosts()[0]
    if lab.has(host, "endpoint_image_build") and not Path(lab.value(host, "proxmox_image")["file"]).exists():
        _command(lab, "endpoint_image_build")


def _command(lab: Inventory, name: str) -> None:
    argv = lab.optional(lab.hosts()[0], name)
    if argv and (code := subprocess.run(argv, check=False).returncode):
        raise LabError(f"{shlex.join(argv)} ended with {code}", "its own words stand above")


def _finish(code: int) -> None:
    if code == UNREACHABLE:
        raise LabError("machines named above do not answer", "dasklab up creates those that are missing")
    if code:
        sys.exit(code)
