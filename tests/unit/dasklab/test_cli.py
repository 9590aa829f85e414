"""The command line: overview, help, start-up time, and errors as one line."""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import distributed
import jsonschema
import pytest
from click.testing import CliRunner, Result
from dasklab import cli
from dasklab.cli import COMMANDS, main
from dasklab.commands import up
from dasklab.console.lab import guest_program, playbooks
from dasklab.machines import local_host
from dasklab.machines.doctor import CheckedLab
from dasklab.machines.endpoint import presence
from dasklab.machines.endpoint.proxmox import Resource
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.model.experiments import experiment
from dasklab.model.forms.json_output import json_schema
from dasklab.paths import SHARE as ROOT
from dasklab.running.driver import driver
from dasklab.running.plan.setup import setup_of
from dasklab.running.playbooks import playbook
from daskwire.terminal.cli import wire as daskwire
from minipve.base.errors import UserError
from minipve.endpoint import control
from minipve.endpoint.cli import minipve

EXAMPLES = ROOT / "inventory" / "examples"
FORWARDERS = ("wire", "minipve")  # pass all arguments to another program


def run(*argv: str) -> Result:
    return CliRunner().invoke(main, argv)


def dasklab(*argv: str, cwd: Path = Path("/")) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "dasklab", *argv)
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)


def walk(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command and subcommand that is not hidden, with its words."""
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
DECODER = dict(walk(daskwire))
TOP_LEVEL = main.list_commands(click.Context(main))


def test_overview_lists_every_command_below_its_title() -> None:
    overview = run("--help").output
    for title, names in COMMANDS.items():
        section = overview.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  ([a-z]+) ", section, re.MULTILINE) == list(names)
    assert "dasklab up " in overview


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_overview_has_the_first_line_of_each_help(name: str) -> None:
    command = EVERY[name,]
    summary = cli.summary(command)
    assert summary.endswith(".") and len(summary) <= 90
    assert " ".join(summary.split()) in " ".join(run("--help").output.split())


def test_every_module_that_defines_its_command_is_listed() -> None:
    """A forgotten line in the table would hide a command."""
    folder = ROOT / "lab" / "dasklab" / "commands"
    defined = {
        path.stem
        for path in folder.glob("*.py")
        if re.search(
            rf"^@click\.(command|group)\(.*?^def {path.stem}\(", path.read_text(), re.DOTALL | re.MULTILINE
        )
    }
    assert defined == set(TOP_LEVEL)


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_and_option_has_help(words: tuple[str, ...]) -> None:
    assert run(*words, "--help").exit_code == 0
    assert EVERY[words].help
    options = [option for option in EVERY[words].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not (option.help or option.hidden)] == []


# Help, and what a command line is most often used for, must not wait for pandas, matplotlib or Ansible, and
# must work without the packages of the extras.
EXTRAS = {"requests", "requests_toolbelt", "proxmoxer", "aiohttp", "bokeh", "perfetto"}
HEAVY = {"pandas", "scipy", "matplotlib", "distributed", "ansible", "numpy", *EXTRAS}
QUICK = [["--help"], *([name, "--help"] for name in TOP_LEVEL if name not in FORWARDERS)]
IMPORTED = f"""
import sys, dasklab.cli
for argv in {QUICK}:
    before = sys.stdout.tell()
    dasklab.cli.main(argv, standalone_mode=False)
    print(*argv, sys.stdout.tell() > before, *sorted({HEAVY} & set(sys.modules)), file=sys.stderr)
"""


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    """All in one process: the first line with a package names the command that imported it."""
    with (tmp_path / "help").open("w") as output:
        argv = [sys.executable, "-c", IMPORTED]
        process = subprocess.run(argv, stdout=output, stderr=subprocess.PIPE, text=True, check=True)
    assert process.stderr.splitlines() == [" ".join([*argv, "True"]) for argv in QUICK]


def test_help_takes_less_than_a_second_of_cpu() -> None:
    before = os.times()
    assert dasklab("--help").returncode == 0
    after = os.times()
    assert sum(after[2:4]) - sum(before[2:4]) < 1


LAB = ("-i", str(DEFAULT))  # a mistake is made in a folder that has no lab
MISTAKES = [
    (("plan", "-i", "nowhere.yml"), "inventory /nowhere.yml does not exist"),
    (("-i", "nowhere.yml", "plan"), "inventory /nowhere.yml does not exist"),
    ((*LAB, "ssh", "pve"), "pve is a node, not a host of the lab; there are client, scheduler"),
    (("inspect", "-i", "/etc/passwd"), "inventory /etc/passwd: "),
    (("record", "127.0.0.1", "{tmp}/record"), "127.0.0.1: the port is missing"),
    (("explain", "/etc"), "etc: this is no record, trial or run\n"),
    ((*LAB, "ssh", "worker-9"), "no host 'worker-9' in inventory"),
    (("up", "-i", "nowhere.yml"), "inventory /nowhere.yml does not exist"),
    (("run", "nix"), "no experiment 'nix'\n  `dasklab run` lists all"),
    (("run", "basline"), "no experiment 'basline'. Did you mean baseline?"),
    (("run", "baseline", "-i", "nowhere.yml"), "inventory /nowhere.yml does not exist"),
    (
        ("run", "/proc"),
        "/proc is not a run: it has no experiment.json\n  to list all runs: dasklab results\n",
    ),
    ((*LAB, "status"), "there is no lab yet\n  to create it: dasklab up\n"),
    ((*LAB, "ssh", "worker-1"), "there is no lab yet\n"),
    ((*LAB, "run", "baseline", "--results", "{tmp}"), "there is no lab yet\n"),
    ((*LAB, "baseline", "--results", "{tmp}"), "there is no lab yet\n"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES)
def test_a_mistake_gives_one_line_without_a_traceback(
    argv: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(playbook, "run", forbidden)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    result = run(*(word.format(tmp=tmp_path) for word in argv))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(result.exception, SystemExit)  # any other exception would be a traceback
    assert result.exit_code == 1
    assert result.stderr.startswith(f"dasklab: {message}")
    assert len(result.stderr.strip().splitlines()) <= 2


WORDS = {  # of a command that takes an inventory, where it needs more
    "ssh": ["worker-1"],
    "tc": ["worker-1", "reset"],
    "capture": ["worker-1"],
    "run": ["baseline"],
    "minipve": ["stop", "--purge"],
    "destroy": ["--yes"],
}


def test_in_a_folder_without_a_lab_no_command_takes_that_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASKLAB_INVENTORY", raising=False)
    monkeypatch.setattr(playbook, "run", forbidden)
    named = {names[0] for names, command in EVERY.items() if "inventory" in {p.name for p in command.params}}
    assert named > set(WORDS)
    for name in named:
        result = run(name, *WORDS.get(name, []))
        assert (name, result.exit_code) == (name, 1)
        assert result.stderr == (
            f"dasklab: there is no lab in {tmp_path}: it has no inventory/hosts.yml\n"
            "  to name another lab: -i FOLDER/inventory/hosts.yml; to create one: dasklab init mylab\n"
        )


def test_a_separate_process_prints_the_same_error() -> None:
    process = dasklab("plan", "-i", "/nowhere.yml")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == run("plan", "-i", "/nowhere.yml").stderr


def test_other_programs_print_errors_the_same_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def disk_full(*_: object) -> None:
        raise UserError("the disk is full", "make room")

    monkeypatch.setattr(control, "all_machines", disk_full)
    result = CliRunner().invoke(minipve, ["status"])
    assert (result.exit_code, result.output) == (1, "minipve: the disk is full\n  make room\n")
    script = str(ROOT / "lab" / "nic_matrix.py")
    monkeypatch.setattr(sys, "argv", [script, "--dry-run", "--only", "nic=x"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(script, run_name="__main__")
    assert exit_.value.code == 1
    assert capsys.readouterr().err.startswith("dasklab: no cell 'nic=x';")


def test_an_unknown_command_is_refused() -> None:
    result = run("fly")
    assert result.exit_code == 2
    assert "No such command 'fly'" in result.output


def test_the_inventory_may_precede_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        guest_program, "call_each", lambda _, hosts, *__: [{"differences": []} for _ in hosts]
    )
    existing = EXAMPLES / "existing" / "hosts.yml"
    output = run("-i", str(existing), "doctor").output
    assert f"inventory {existing}: client, scheduler, worker-1, worker-2, worker-3" in output
    assert all(f"--    {name}: /" in output for name in ("state", "cache", "results"))
    checked = json.loads(run("-i", str(existing), "doctor", "--json").stdout)
    jsonschema.validate(checked, json_schema(CheckedLab))
    assert checked["findings"][-1]["text"].startswith(f"inventory {existing}: client")
    assert set(checked["folders"]) == {"state", "cache", "results"}
    assert checked["versions"]["distributed"] == distributed.__version__
    both = run("-i", "nowhere.yml", "doctor", "-i", str(existing)).output
    assert f"inventory {existing}: client" in both
    refused = run("-i", str(existing), "wire", "capture.pcap")
    assert (refused.exit_code, "'wire' takes no inventory" in refused.output) == (2, True)


def unreachable(*_: object, **__: object) -> int:
    return playbooks.UNREACHABLE


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["status"], "`dasklab up` creates and starts missing machines"),
        (["up", "--only", "provision"], "`dasklab status` shows which machines run"),
        (
            ["-i", str(EXAMPLES / "existing/hosts.yml"), "status"],
            "`ssh -F /dev/null root@192.0.2.11` must work from here",
        ),
    ],
)
def test_unreachable_machines_come_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], hint: str
) -> None:
    monkeypatch.setattr(playbook, "run", unreachable)
    monkeypatch.setattr(up, "run_endpoint_program", lambda *_: None)
    monkeypatch.setattr(local_host, "require", lambda *_: None)
    monkeypatch.setattr(up, "_build_image", lambda *_: None)
    monkeypatch.setattr(presence, "require_endpoint", lambda *_: None)
    result = run(*argv)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].strip().startswith(hint)


def forbidden(*_: object, **__: object) -> int:
    raise AssertionError("nothing may be started")


def test_a_lab_that_was_never_created_is_not_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    monkeypatch.setattr(playbook, "run", forbidden)
    monkeypatch.setattr(up, "run_endpoint_program", forbidden)
    assert run("up", "--only", "configure").stderr.partition("\n")[2] == (
        "dasklab: there is no lab yet\n  to create it: dasklab up\n"
    )


def test_home_with_too_long_a_path_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ssh would refuse each connection, and the playbook would wait minutes for hosts that answer."""
    home = tmp_path / ("x" * 80)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    monkeypatch.setattr(playbook, "run", forbidden)
    monkeypatch.setattr(up, "run_endpoint_program", forbidden)
    monkeypatch.setattr(local_host, "require", forbidden)
    stderr = run("up").stderr
    assert f"{home}/.ansible/cp/" in stderr and "set XDG_RUNTIME_DIR to a folder of yours" in stderr


def test_stopped_machines_are_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"vmid": 9100 + n, "status": "stopped" if n == 4 else "running"} for n in range(1, 5)]
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET"):
        monkeypatch.setenv(f"PROXMOX_{name}", "lab@pve" if name == "USER" else "x")
    answers = {"/nodes": [{"node": "pve", "status": "online"}], "/nodes/pve/qemu": rows}
    monkeypatch.setattr(Resource, "get", lambda self: answers.get(self._path, []))
    monkeypatch.setattr(playbook, "run", forbidden)
    stderr = run("-i", str(EXAMPLES / "proxmox" / "hosts.yml"), "up", "--only", "configure").stderr
    assert "\ndasklab: the lab differs from the inventory: worker-2, worker-3 are not running\n" in stderr
    assert stderr.endswith("dasklab up\n")


def test_node_in_the_wrong_case_is_named_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET"):
        monkeypatch.setenv(f"PROXMOX_{name}", "lab@pve" if name == "USER" else "x")
    answers = {"/nodes": [{"node": "PVE", "status": "online"}]}
    monkeypatch.setattr(Resource, "get", lambda self: answers.get(self._path, []))
    monkeypatch.setattr(playbook, "run", forbidden)
    stderr = run("-i", str(EXAMPLES / "proxmox" / "hosts.yml"), "plan").stderr
    assert "dasklab: https://x:8006 has no node 'pve'; there are PVE\n" in stderr


def test_a_run_is_resumed_only_as_it_was_planned(tmp_path: Path) -> None:
    name, content = experiment.load("baseline", quick=True)
    planned = driver.start(tmp_path, name, content, setup_of(Inventory()), quick=True)
    refused = run("run", str(planned.stored), "--quick")
    assert (refused.exit_code, "this is an existing run" in refused.output) == (2, True)
    preview = run("run", str(planned.stored), "--dry-run")
    assert (preview.exit_code, "1-01-baseline" in preview.output) == (0, True)
    assert preview.output.splitlines()[-1].startswith("1 trial, about ")
    assert not (planned.stored.folder / "1-01-baseline").exists()


DOCS = ROOT / "docs"


@pytest.mark.parametrize("words", DECODER, ids=" ".join)
def test_every_command_and_option_of_the_decoder_is_documented(words: tuple[str, ...]) -> None:
    documented = set(re.findall(r"[\w-]+", (ROOT / "lab" / "daskwire" / "README.md").read_text()))
    options = [option for option in DECODER[words].params if isinstance(option, click.Option)]
    names = {max(option.opts, key=len) for option in options if not option.hidden}
    assert {*words, *names} <= documented


def test_the_source_tree_page_has_every_folder() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tree = (
        (DOCS / "explanation" / "design.md").read_text().partition("## Source tree")[2].partition("\n## ")[0]
    )
    folders = {line.partition("/")[0] for line in listed.split() if "/" in line and line[0] != "."}
    packages = {line.split("/")[1] for line in listed.split() if re.match("lab/[a-z_]+/", line)}
    assert "lab" in folders and "daskwire" in packages
    assert [name for name in folders | packages if f"{name}/ " not in tree] == []


def documented_commands() -> Iterator[tuple[str, str]]:
    """Yield the command lines that texts and comments contain: (file, command)."""
    pattern = ["git", "ls-files", "*.md", "*.yml", "*.py", "Makefile"]
    files = subprocess.run(pattern, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for file in files:
        if not file.startswith(("tests/", "CHANGELOG")) and (ROOT / file).exists():
            text = (ROOT / file).read_text()
            inline = re.findall(r"`(?:\.venv/bin/)?(dasklab [^`\n]+)`", text)
            lines = re.findall(
                r"^[#@$ (BIN)/]*(?:\.venv/bin/)?(dasklab (?!:).*)$",
                code_blocks(text) if file.endswith(".md") else text,
                re.MULTILINE,
            )
            for command in [*inline, *(re.split(r"  +|\s#|\s>|\s\|", line)[0] for line in lines)]:
                if "[OPTIONS]" not in command:  # the usage line of a help
                    yield file, command


def code_blocks(page: str) -> str:
    """Return the fenced and the indented code of a Markdown page."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"^    .*$", page, re.MULTILINE)])


def alternatives(command: str) -> Iterator[list[str]]:
    """Yield the commands that a line stands for: ``serve|stop`` is two, brackets and dots are ignored."""
    words = shlex.split(re.sub(r"[\[\]\\]|\.\.\.", "", command))[1:]
    yield from map(list, itertools.product(*(word.split("|") for word in words)))


DOCUMENTED = sorted(set(documented_commands()))


def test_documented_commands_are_collected() -> None:
    files = {file for file, _ in DOCUMENTED}
    assert len(DOCUMENTED) > 50
    assert {
        "README.md",
        "lab/dasklab/cli.py",
        "inventory/examples/proxmox/hosts.yml",
        "lab/daskwire/README.md",
    } <= files


@pytest.mark.parametrize(("file", "command"), DOCUMENTED)
def test_documented_commands_are_accepted(monkeypatch: pytest.MonkeyPatch, file: str, command: str) -> None:
    for defined in (*EVERY.values(), *DECODER.values()):
        if defined.name not in ("wire",):
            monkeypatch.setattr(defined, "callback", lambda *_, **__: None)
    for argv in alternatives(command):
        if any(words[: len(argv)] == tuple(argv) for words in EVERY):
            continue  # only the command's name
        result = run(*argv)
        missing = "does not exist" in result.output  # a run or a file of the reader's own
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
    pages = {page for page in DOCS.rglob("*.md") if "_build" not in page.parts}
    assert sorted(pages - reachable) == []


def test_readme_is_short() -> None:
    assert 60 <= len((ROOT / "README.md").read_text().splitlines()) <= 120
