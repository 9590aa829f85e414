"""Run third-party clients of Proxmox VE against minipve, each in its own environment, and print a table.

    .venv/bin/python benchmarks/minipve_clients.py                       # about 10 minutes
    .venv/bin/python benchmarks/minipve_clients.py --only proxmoxer
    .venv/bin/python benchmarks/minipve_clients.py --collection FOLDER   # a checkout of community.proxmox
    .venv/bin/python benchmarks/minipve_clients.py --image               # also molecule-proxmox

The clients are the modules and the inventory plugin of the Ansible collection community.proxmox
(support/minipve_modules.py), programs and libraries from PyPI (support/minipve_programs.py), an npm
package, and with ``--image`` a scenario of molecule-proxmox. The verdicts:

    works     all steps succeed
    partly    some steps succeed, and minipve refuses the others in clear words
    refused   minipve refuses all steps in clear words
    wrong     a step fails for another reason, or a second call of an idempotent module changes something

Environments are installed once, in ``--folder``. The exit status is 1 if a client is wrong, and 2 if the
clients cannot be run here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import CANNOT_RUN, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--folder": (Path.home() / ".cache/minipve-clients", "of the clients' environments"),
            "--collection": (Path, "folder with the collection community.proxmox"),
            "--only": ("", "run only clients whose name contains this"),
            "--image": (False, "build the guests' image for molecule-proxmox"),
            "--port": (8006, "some clients know only the default"),
        },
        smallest="--folder {folder} --only proxmoxer",
    )

ROOT = Path(__file__).resolve().parents[1]

from benchmarks.support import minipve_molecule
from benchmarks.support.minipve_curl import finish, request
from benchmarks.support.minipve_modules import MODULES, TEMPLATE, Step
from benchmarks.support.minipve_programs import NODE_PROGRAM, PROGRAMS, Program
from tests.contract.lab import tiny

TIMEOUT_S = 300
REFUSAL = re.compile(
    r"not implemented|not supported here|is supported here|minipve has no|only 0 is supported"
    r"|the only storage is|does not support .* content"
)
MACHINE = {"vmid": "100", "name": "client", "memory": "32", "kvm": "0", "scsi0": "local:1,format=qcow2"}
"""The VM that programs list, and whose console gets keys."""
NPM_CLIENT = "npm proxmox-api"
CONTAINER = {"vmid": "101", "hostname": "box", "ostemplate": "local:vztmpl/box.tar.gz", "rootfs": "local:1"}


class CannotRunError(Exception):
    """What the benchmark needs is missing. The text is one line."""


@dataclass
class Result:
    """The outcome of a client's steps."""

    name: str
    version: str
    succeeded: int = 0
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.wrong:
            return "wrong"
        if self.refused:
            return "partly" if self.succeeded else "refused"
        return "works"

    @property
    def row(self) -> str:
        texts = [*self.refused, *self.wrong]
        return f"| {self.name} | {self.version} | {self.verdict} | {'; '.join(texts).replace('|', ' ')} |"

    def add(self, title: str, error: str | None, refusal: str = "") -> None:
        """Add a step: it succeeded if ``error`` is None, and was refused if the error matches a refusal."""
        if error is None:
            self.succeeded += 1
            return
        text = " ".join(error.split())
        is_refusal = REFUSAL.search(text) or (refusal and re.search(refusal, text))
        (self.refused if is_refusal else self.wrong).append(f"{title}: {text[-250:]}")


@contextmanager
def endpoint(state: Path, port: int) -> Iterator[dict[str, str]]:
    """Start a cluster of two nodes, and yield the variables of `minipve env`."""
    minipve = [sys.executable, "-m", "minipve", "--state", str(state)]
    options = ["--detach", "--unauthorized-delay", "0", "--port", str(port), "--nodes", "2"]
    started = subprocess.run(
        [*minipve, "serve", *options], stdout=sys.stderr, stderr=subprocess.PIPE, text=True
    )
    if started.returncode:
        raise CannotRunError(" ".join(started.stderr.split()))
    try:
        lines = subprocess.run([*minipve, "env"], check=True, capture_output=True, text=True).stdout
        pairs = (line.removeprefix("export ").partition("=") for line in lines.splitlines())
        variables = {name: value.strip("'") for name, _, value in pairs}
        yield variables | {"ADDRESS": f"{variables['PROXMOX_HOST']}:{variables['PROXMOX_PORT']}"}
    finally:
        subprocess.run([*minipve, "stop", "--purge"], check=True, stdout=sys.stderr)


def create_guests(variables: Mapping[str, str], work: Path) -> None:
    """Create the machine and the container that the clients list."""
    finish(variables, request(variables, "/nodes/pve/qemu", **MACHINE))
    archive = work / CONTAINER["ostemplate"].rpartition("/")[2]
    archive.write_bytes(tiny.template())
    form = ["--form", "content=vztmpl", "--form", f"filename=@{archive}"]
    finish(variables, request(variables, "/nodes/pve/storage/local/upload", *form))
    finish(variables, request(variables, "/nodes/pve/lxc", **CONTAINER))


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """Return the folder with the programs of a virtual environment, which is created once."""
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", *packages], check=True)
        (folder / "ready").touch()
    return folder / "bin"


def run(command: Sequence[Any], variables: Mapping[str, str], folder: Path) -> tuple[bool, str]:
    """Run a client. Returns whether it succeeded, and its output."""
    result = subprocess.run(
        [str(word) for word in command], env=os.environ | variables, cwd=folder,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return result.returncode == 0, result.stdout + result.stderr


def version(programs: Path, package: str) -> str:
    output = run([programs / "pip", "show", re.split("[=<>]", package)[0]], {}, programs)[1]
    match = re.search(r"^Version: (.+)$", output, re.MULTILINE)
    return match[1] if match else "?"


def program(client: Program, folder: Path, home: Path, variables: Mapping[str, str]) -> Result:
    """Run the commands of a client in a home folder of its own."""
    programs = environment(folder / re.sub(r"\W+", "-", client.name), client.packages)

    def filled(template: str) -> str:
        return re.sub(r"{([A-Z_]+)}", lambda match: variables[match[1]], template)

    for name, template in client.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(filled(template))
        (home / name).chmod(0o600)
    own = {name: filled(template) for name, template in client.variables.items()}
    own |= {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "200"}
    result = Result(client.name, version(programs, client.packages[0]))
    for words, pattern in client.commands.items():
        succeeded, output = run(words, {**variables, **own}, home)
        is_right = succeeded and re.search(pattern, output)
        title = " ".join(words[:6]) if words[0] != "python" else "program"
        result.add(title, None if is_right else output or "no output")
    return result


def npm_client(folder: Path, variables: Mapping[str, str]) -> Result:
    """Run the npm package proxmox-api."""
    place = folder / "npm"
    if not (place / "node_modules/proxmox-api").exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", place, "proxmox-api"], check=True)
    package = json.loads((place / "node_modules/proxmox-api/package.json").read_text())
    succeeded, output = run(["node", "-e", NODE_PROGRAM], variables, place)
    result = Result(NPM_CLIENT, package["version"])
    result.add("program", None if succeeded else output)
    return result


@dataclass(frozen=True)
class Ansible:
    """An Ansible with community.proxmox: its programs, variables and the collection's version."""

    programs: Path
    variables: dict[str, str]
    version: str

    @classmethod
    def install(cls, folder: Path, collection: Path | None, variables: Mapping[str, str]) -> Ansible:
        packages = ("ansible-core", "proxmoxer", "requests", "requests-toolbelt")
        programs = environment(folder / "ansible", packages)
        target = folder / "collections/ansible_collections/community/proxmox"
        if collection is not None:
            shutil.copytree(collection, target, dirs_exist_ok=True)
        elif not target.exists():
            install = ["collection", "install", "community.proxmox", "-p", str(folder / "collections")]
            subprocess.run([str(programs / "ansible-galaxy"), *install], check=True)
        own = {
            "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_PYTHON_INTERPRETER": str(programs / "python"),
            "REQUESTS_CA_BUNDLE": variables["PROXMOX_CA_FILE"],
        }
        return cls(programs, {**variables, **own}, _collection_version(target))


def _collection_version(folder: Path) -> str:
    if (manifest := folder / "MANIFEST.json").exists():
        return str(json.loads(manifest.read_text())["collection_info"]["version"])
    match = re.search(r"^version: (.+)$", (folder / "galaxy.yml").read_text(), re.MULTILINE)
    return match[1] if match else "?"


def calls(modules: Sequence[str]) -> Iterator[tuple[str, str, Step, bool]]:
    """Yield module, title, step, and whether the call must change nothing."""
    for module in modules:
        for step in MODULES[module]:
            yield module, step.name, step, False
            if step.again:
                yield module, f"{step.name} again", step, True


def playbook(modules: Sequence[str], answers: Path) -> list[dict[str, Any]]:
    """Return a playbook that makes all calls, and writes the list of their answers to a file."""
    tasks: list[dict[str, Any]] = [
        {
            "name": f"{module}: {title}",
            f"community.proxmox.{module}": {"validate_certs": True} | step.arguments,
            "register": f"answer_{number}",
            "ignore_errors": True,
        }
        for number, (module, title, step, _) in enumerate(calls(modules))
    ]
    names = ", ".join(task["register"] for task in tasks)
    write = {"content": f"{{{{ [{names}] | to_json }}}}", "dest": str(answers)}
    tasks.append({"ansible.builtin.copy": write})
    return [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]


def ansible_modules(ansible: Ansible, modules: Sequence[str], work: Path) -> list[Result]:
    """Run the steps of modules as one playbook. Returns a result per module."""
    (work / TEMPLATE).write_bytes(tiny.template())
    (work / "playbook.yml").write_text(json.dumps(playbook(modules, work / "answers.json"), indent=1))
    subprocess.run(
        [ansible.programs / "ansible-playbook", "playbook.yml"],
        env=os.environ | ansible.variables, cwd=work, check=True, stdout=sys.stderr,
    )  # fmt: skip
    results = {module: Result(f"community.proxmox.{module}", ansible.version) for module in modules}
    answers = json.loads((work / "answers.json").read_text())
    for (module, title, step, unchanged), answer in zip(calls(modules), answers, strict=True):
        error = str(answer.get("msg", "no text")) if answer.get("failed") else None
        if error is None and unchanged and answer["changed"]:
            error = "changed again"
        results[module].add(title, error, step.refusal)
    return list(results.values())


def ansible_inventory(ansible: Ansible, work: Path) -> Result:
    """List the guests with the inventory plugin of community.proxmox."""
    variables = ansible.variables
    settings = {
        "plugin": "community.proxmox.proxmox",
        "url": variables["PROXMOX_URL"],
        "user": variables["PROXMOX_USER"],
        "token_id": variables["PROXMOX_TOKEN_ID"],
        "token_secret": variables["PROXMOX_TOKEN_SECRET"],
        "validate_certs": True,
        "want_facts": True,
    }
    (work / "machines.proxmox.yml").write_text(json.dumps(settings))
    words = [ansible.programs / "ansible-inventory", "-i", "machines.proxmox.yml", "--list"]
    succeeded, output = run(words, variables | {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "1"}, work)
    result = Result("community.proxmox inventory plugin", ansible.version)
    is_right = succeeded and re.search(r'"proxmox_vmid": 100\b', output)
    result.add("list", None if is_right else output)
    return result


def results(args: Namespace, variables: dict[str, str], work: Path) -> Iterator[Result]:
    """Run the clients whose names contain ``args.only``."""

    def home(name: str) -> Path:
        folder = work / re.sub(r"\W+", "-", name)
        folder.mkdir()
        return folder

    for client in PROGRAMS:
        if args.only in client.name:
            yield program(client, args.folder, home(client.name), variables)
    if args.only in NPM_CLIENT:
        yield npm_client(args.folder, variables)
    modules = [module for module in MODULES if args.only in f"community.proxmox.{module}"]
    is_inventory = args.only in "community.proxmox inventory plugin"
    if modules or is_inventory or args.image:
        ansible = Ansible.install(args.folder, args.collection, variables)
    if is_inventory:
        yield ansible_inventory(ansible, home("inventory"))
    if modules:
        finish(variables, request(variables, "/nodes/pve/qemu/100/status/start", "--data", ""))
        yield from ansible_modules(ansible, modules, home("modules"))
    if args.image and args.only in minipve_molecule.NAME:
        programs = environment(args.folder / "molecule", minipve_molecule.PACKAGES)
        result = Result(minipve_molecule.NAME, version(programs, minipve_molecule.NAME))
        for title, error in minipve_molecule.steps(programs, ansible.variables, home("molecule")):
            result.add(title, error)
        yield result


def main(args: Namespace) -> None:
    try:
        counts = run_clients(args)
    except (CannotRunError, subprocess.CalledProcessError) as problem:
        print(f"minipve_clients: {problem}", file=sys.stderr)
        raise SystemExit(CANNOT_RUN) from None
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("works", "partly", "refused", "wrong"))
    print(f"\n{counts.total()} clients: {summary}")
    raise SystemExit(1 if counts["wrong"] else 0)


def run_clients(args: Namespace) -> Counter[str]:
    """Print a row for each client, and return the number of each verdict."""
    if not tiny.BUSYBOX.exists():
        raise CannotRunError(f"{tiny.BUSYBOX} is missing: apt install busybox")
    if args.only in NPM_CLIENT and not shutil.which("npm"):
        raise CannotRunError(f"npm is missing: apt install npm, or leave out {NPM_CLIENT} with --only")
    args.folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="minipve-clients-") as name,
        endpoint(Path(name) / "state", args.port) as variables,
    ):
        create_guests(variables, Path(name))
        print("| client | version | verdict | refused or wrong |\n|---|---|---|---|")
        for result in results(args, variables, Path(name)):
            counts[result.verdict] += 1
            print(result.row, flush=True)
    return counts


if __name__ == "__main__":
    main(ARGUMENTS)
