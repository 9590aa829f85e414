"""The command line: its table, its texts, its speed, and how it tells mistakes."""

from __future__ import annotations

import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from dasklab.cli import COMMANDS, main
from dasklab.commands import machines
from dasklab.machines import presence
from dasklab.machines.inventory import Inventory
from dasklab.machines.proxmox import Resource
from dasklab.model import experiment
from dasklab.paths import SHARE as ROOT
from dasklab.running import driver, playbook
from dasklab.running.setup import setup_of
from minipve import launch
from minipve.cli import minipve
from minipve.user_error import UserError

EXAMPLES = ROOT / "inventory" / "examples"


def run(*argv: str) -> Result:
    return CliRunner().invoke(main, argv)


def lab(*argv: str, cwd: Path = Path("/")) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "dasklab", *argv)
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)


def walk(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and sub-command that is not hidden, by its words."""
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield names, command
        return
    if command.invoke_without_command:
        yield names, command
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None, name
        if not inner.hidden:
            yield from walk(inner, *names, name)


EVERY = dict(walk(main))


def test_help_lists_every_command_and_teaches_the_usual_path() -> None:
    told = run("--help").output
    for name in COMMANDS:
        assert f"\n  {name} " in told
    assert "dasklab up " in told


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_a_commands_own_help_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert str(command.help).startswith(COMMANDS[name][1].removesuffix("."))


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_and_option_says_what_it_does(words: tuple[str, ...]) -> None:
    assert run(*words, "--help").exit_code == 0
    assert EVERY[words].help
    options = [option for option in EVERY[words].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not (option.help or option.hidden)] == []


# Help, and what a command line is most often used for, must not wait for pandas, matplotlib or Ansible.
HEAVY = {"pandas", "scipy", "matplotlib", "distributed", "ansible", "numpy"}
QUICK = [
    ["--help"],
    *([name, "--help"] for name in COMMANDS if name not in ("wire", "minipve")),
]
IMPORTED = f"""
import sys, dasklab.cli
for argv in {QUICK}:
    before = sys.stdout.tell()
    dasklab.cli.main(argv, standalone_mode=False)
    print(*argv, sys.stdout.tell() > before, *sorted({HEAVY} & set(sys.modules)), file=sys.stderr)
"""


def test_short_commands_import_nothing_heavy(tmp_path: Path) -> None:
    """All in one process, that has none of it before: who is the first to import it is the one to blame."""
    with (tmp_path / "told").open("w") as told:
        argv = [sys.executable, "-c", IMPORTED]
        done = subprocess.run(argv, stdout=told, stderr=subprocess.PIPE, text=True, check=True)
    assert done.stderr.splitlines() == [" ".join([*argv, "True"]) for argv in QUICK]


def test_help_comes_at_once() -> None:
    """In seconds of this machine's CPU: other work on it must not fail the test."""
    before = os.times()
    assert lab("--help").returncode == 0
    after = os.times()
    assert sum(after[2:4]) - sum(before[2:4]) < 1


MISTAKES = [
    (("plan", "-i", "nowhere.yml"), "inventory /nowhere.yml does not exist"),
    (("-i", "nowhere.yml", "plan"), "inventory /nowhere.yml does not exist"),
    (("ssh", "worker-9"), "no host 'worker-9' in inventory"),
    (("up", "-i", "nowhere.yml"), "inventory /nowhere.yml does not exist"),
    (("run", "nix"), "no experiment 'nix'; there are: baseline"),
    (("run", "basline"), "no experiment 'basline'; there are: baseline"),
    (("run", "baseline", "-i", "nowhere.yml"), "inventory /nowhere.yml does not exist"),
    (("status",), "there is no lab yet"),
    (("ssh", "worker-1"), "there is no lab yet"),
    (("run", "baseline", "--results", "{tmp}"), "there is no lab yet"),
    (("baseline", "--results", "{tmp}"), "there is no lab yet"),
]


@pytest.mark.parametrize(("argv", "told"), MISTAKES)
def test_a_users_mistake_is_one_line_and_no_traceback(
    argv: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(playbook, "run", forbidden)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    done = run(*(word.format(tmp=tmp_path) for word in argv))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(done.exception, SystemExit)  # any other would be a traceback
    assert done.exit_code == 1
    assert done.stderr.startswith(f"dasklab: {told}")
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_process_of_its_own_tells_a_mistake_alike() -> None:
    done = lab("plan", "-i", "/nowhere.yml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == run("plan", "-i", "/nowhere.yml").stderr


def test_other_ways_in_tell_mistakes_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise UserError("the disk is full", "make room")

    monkeypatch.setattr(launch, "facts", full)
    told = CliRunner().invoke(minipve, ["status"])
    assert (told.exit_code, told.output) == (1, "minipve: the disk is full\n  make room\n")
    script = str(ROOT / "lab" / "nic_matrix.py")
    monkeypatch.setattr(sys, "path", [str(ROOT / "lab"), *sys.path])  # as Python has it for a file
    monkeypatch.setattr(sys, "argv", [script, "--dry-run", "--only", "nic=x"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("dasklab: no cell 'nic=x';")


def test_an_unknown_command_is_refused() -> None:
    result = run("fly")
    assert result.exit_code == 2
    assert "No such command 'fly'" in result.output


def test_the_inventory_may_be_named_before_the_command() -> None:
    existing = EXAMPLES / "existing" / "hosts.yml"
    told = run("-i", str(existing), "doctor").output
    assert f"inventory {existing}: client, scheduler, worker-1, worker-2, worker-3" in told
    closer = run("-i", "nowhere.yml", "doctor", "-i", str(existing)).output
    assert f"inventory {existing}: client" in closer
    refused = run("-i", str(existing), "wire", "capture.pcap")
    assert (refused.exit_code, "'wire' takes no inventory" in refused.output) == (2, True)


def unreachable(*_: object, **__: object) -> int:
    return machines.UNREACHABLE


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["status"], "`dasklab up` makes and starts what is missing"),
        (["up", "--only", "provision"], "`dasklab status` shows which machines run"),
        (
            ["-i", str(EXAMPLES / "existing/hosts.yml"), "status"],
            "`ssh -F /dev/null root@192.0.2.11` must work from here",
        ),
    ],
)
def test_what_does_not_answer_comes_with_what_to_do_about_it(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], hint: str
) -> None:
    monkeypatch.setattr(playbook, "run", unreachable)
    monkeypatch.setattr(machines, "_command", lambda *_: None)
    monkeypatch.setattr(machines, "_image_ready", lambda *_: None)
    monkeypatch.setattr(presence, "require_endpoint", lambda *_: None)
    result = run(*argv)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].strip().startswith(hint)


def forbidden(*_: object, **__: object) -> int:
    raise AssertionError("nothing may be started")


def test_a_lab_that_was_never_made_is_not_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    monkeypatch.setattr(playbook, "run", forbidden)
    monkeypatch.setattr(machines, "_command", forbidden)
    assert run("up", "--only", "configure").stderr.partition("\n")[2] == (
        "dasklab: nothing to configure, none of this lab's machines runs\n"
        "  run `dasklab up` first: it makes and starts them\n"
    )


def test_machines_that_do_not_run_are_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [{"vmid": 9100 + n, "status": "stopped" if n == 4 else "running"} for n in range(1, 5)]
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET"):
        monkeypatch.setenv(f"PROXMOX_{name}", "lab@pve" if name == "USER" else "x")
    monkeypatch.setattr(Resource, "get", lambda self: seen if self._path == "/nodes/pve/qemu" else [])
    monkeypatch.setattr(playbook, "run", forbidden)
    told = run("-i", str(EXAMPLES / "proxmox" / "hosts.yml"), "up", "--only", "configure").stderr
    assert "\ndasklab: nothing to configure, not running: worker-2, worker-3\n" in told


def test_a_run_goes_on_only_as_it_began(tmp_path: Path) -> None:
    name, content = experiment.load("baseline", quick=True)
    begun = driver.start(tmp_path, name, content, setup_of(Inventory()), quick=True)
    told = run("run", str(begun.directory), "--quick")
    assert (told.exit_code, "a run goes on as it began" in told.output) == (2, True)
    told = run("run", str(begun.directory), "--dry-run")
    assert (told.exit_code, "1-01-baseline" in told.output) == (0, True)
    assert not (begun.directory / "1-01-baseline").exists()


DOCS = ROOT / "docs"
COMMANDS_PAGE = (DOCS / "reference" / "commands.md").read_text()
BOOKS = {  # pages of commands that have one of their own
    "wire": (ROOT / "lab" / "daskwire" / "README.md").read_text(),
    "minipve": (ROOT / "lab" / "minipve" / "README.md").read_text(),
}
SHARED = {"inventory", "root", "help"}  # described once for all commands


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_and_option_is_documented(words: tuple[str, ...]) -> None:
    assert f"dasklab {words[0]}" in COMMANDS_PAGE
    documented = set(re.findall(r"[\w-]+", BOOKS.get(words[0], COMMANDS_PAGE)))
    assert set(words[1:]) <= documented
    options = [option for option in EVERY[words].params if isinstance(option, click.Option)]
    names = {
        max(option.opts, key=len) for option in options if not option.hidden and option.name not in SHARED
    }
    assert names <= documented


def test_the_source_tree_page_has_every_folder() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tree = (
        (DOCS / "explanation" / "design.md").read_text().partition("## Source tree")[2].partition("\n## ")[0]
    )
    folders = {line.partition("/")[0] for line in listed.split() if "/" in line and line[0] != "."}
    packages = {line.split("/")[1] for line in listed.split() if re.match("lab/[a-z_]+/", line)}
    assert "lab" in folders and "daskwire" in packages
    assert [name for name in folders | packages if f"{name}/ " not in tree] == []


def commands_told() -> Iterator[tuple[str, str]]:
    """What texts and comments tell people to type: (file, command)."""
    listed = ["git", "ls-files", "*.md", "*.yml", "*.py", "Makefile"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for file in files:
        if not file.startswith(("tests/", "CHANGELOG")) and (ROOT / file).exists():
            text = (ROOT / file).read_text()
            yield from ((file, found) for found in re.findall(r"`(?:\.venv/bin/)?(dasklab [^`\n]+)`", text))
            lines = re.findall(r"^[#@$ (BIN)/]*(?:\.venv/bin/)?(dasklab (?!:).*)$", text, re.MULTILINE)
            yield from ((file, re.split(r"  +|\s#", line)[0]) for line in lines)


def spelled_out(command: str) -> Iterator[list[str]]:
    """``serve|stop`` is two commands; brackets and dots are for the reader."""
    words = shlex.split(re.sub(r"[\[\]\\]|\.\.\.", "", command))[1:]
    yield from map(list, itertools.product(*(word.split("|") for word in words)))


TOLD = sorted(set(commands_told()))


def test_enough_commands_are_found_in_texts() -> None:
    files = {file for file, _ in TOLD}
    assert len(TOLD) > 50
    assert {
        "README.md",
        "lab/dasklab/cli.py",
        "inventory/examples/proxmox/hosts.yml",
        "lab/daskwire/README.md",
    } <= files


@pytest.mark.parametrize(("file", "command"), TOLD)
def test_what_texts_tell_people_to_type_is_accepted(
    monkeypatch: pytest.MonkeyPatch, file: str, command: str
) -> None:
    for each in EVERY.values():
        monkeypatch.setattr(each, "callback", lambda *_, **__: None)
    for argv in spelled_out(command):
        if any(words[: len(argv)] == tuple(argv) for words in EVERY):
            continue  # a command that is only named
        result = run(*argv)
        missing = "does not exist" in result.output  # a run or a file that stands for the reader's own
        assert result.exit_code == 0 or missing, f"{file}: {command}: {result.output}"


def links(page: Path) -> Iterator[str]:
    """Relative targets of a Markdown page's links and pictures."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"https?://|#|mailto:", target):
            yield target.partition("#")[0]


PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "lab").rglob("README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reachable, frontier = set[Path](), [ROOT / "README.md"]
    while frontier:
        page = frontier.pop()
        if page.suffix == ".md" and page not in reachable:
            reachable.add(page)
            frontier += [(page.parent / target).resolve() for target in links(page)]
    assert sorted(set(DOCS.rglob("*.md")) - reachable) == []


def test_readme_is_short() -> None:
    assert 60 <= len((ROOT / "README.md").read_text().splitlines()) <= 120
