"""The contract, the defaults and the README of a role agree, and it needs no role but those it declares."""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab.machines.inventory.groups import REQUIRED
from dasklab.machines.inventory.topology import Guest, Lab
from dasklab.model.forms.strict import validate
from dasklab.model.settings.trial_settings import Probes
from dasklab.paths import PLAYBOOKS, ROLES

from docs.parts import roles as role_pages

NAMES = sorted(path.name for path in ROLES.iterdir() if path.is_dir())
SHARED = {  # variables of a host, not of a role
    "capture_interface",
    "capture_mac",
    "capture_offloads",  # a key of the guest's settings
}


@cache
def documents(role: str, folder: str) -> list[Any]:
    """Return the parsed YAML files of a folder of a role."""
    return [yaml.safe_load(path.read_text()) for path in sorted((ROLES / role / folder).glob("*.yml"))]


def mappings(document: Any) -> list[dict[str, Any]]:
    """Return all mappings in a document, however deep."""
    if isinstance(document, list):
        return [mapping for part in document for mapping in mappings(part)]
    if isinstance(document, dict):
        return [document, *(mapping for part in document.values() for mapping in mappings(part))]
    return []


def tasks(role: str) -> list[dict[str, Any]]:
    """Return all tasks and blocks of a role."""
    return [mapping for document in documents(role, "tasks") for mapping in mappings(document)]


def used_roles(role: str) -> set[str]:
    """Return the roles that a role's tasks import or include."""
    calls = (
        task.get(f"ansible.builtin.{verb}_role") for task in tasks(role) for verb in ("import", "include")
    )
    return {call["name"] for call in calls if call}


def declared(role: str) -> set[str]:
    """Return the roles that ``meta/main.yml`` declares."""
    return {dependency["role"] for dependency in documents(role, "meta")[1]["dependencies"]}


def options(role: str) -> dict[str, dict[str, Any]]:
    """Return the variables of all entry points."""
    entries = role_pages.specification(ROLES / role).values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "base" and not name.startswith("proxmox_")]
)
def test_role_on_hosts_depends_on_base_alone(name: str) -> None:
    assert declared(name) == {"base"}
    assert used_roles(name) <= {"base"}


@pytest.mark.parametrize("name", NAMES)
def test_role_declares_the_roles_that_it_uses(name: str) -> None:
    assert used_roles(name) - {name} <= declared(name)


@pytest.mark.parametrize("name", NAMES)
def test_programs_are_copied_without_their_text_as_a_difference(name: str) -> None:
    """`--check --diff` of one role printed 2,294 lines of Python, for each host."""
    programs = (
        "/opt/dasklab/lib/dasklab_guest/",
        "/opt/dasklab/workloads/",
        "/opt/dasklab/bin/dasklab-guest",
    )
    copies = [task for task in tasks(name) if task.get("ansible.builtin.copy", {}).get("dest") in programs]
    assert [task["name"] for task in copies if task.get("diff") is not False] == []


def test_dependencies_have_no_cycle() -> None:
    order = TopologicalSorter({name: declared(name) for name in NAMES}).static_order()
    assert set(order) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_role_names_no_variable_of_another_role(name: str) -> None:
    foreign = [other for other in NAMES if other not in {name, "base"}]
    text = "\n".join(
        path.read_text()
        for folder in ("tasks", "defaults", "vars", "templates", "handlers")
        for path in (ROLES / name / folder).glob("*")
    )
    variables = set(re.findall(r"\b[a-z]+_\w+\b", re.sub(r"/[\w/.-]+|`.*?`", "", text))) - SHARED
    own = {word for word in variables if word.startswith(f"{name}_")}
    assert {word for word in variables - own for other in foreign if word.startswith(f"{other}_")} == set()


def test_guest_program_is_installed_by_role_base_alone() -> None:
    copies = {name for name in NAMES for task in tasks(name) if "dasklab_guest" in str(task)}
    assert copies == {"base"}
    assert [str(path) for path in ROLES.glob("*/files/dasklab_guest")] == [
        str(ROLES / "base" / "files" / "dasklab_guest")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_example_of_a_role_for_hosts_becomes_root(name: str) -> None:
    """With `ansible_user: debian` and without it, the first file of a role cannot be written."""
    [play] = yaml.safe_load(role_pages.specification(ROLES / name)["main"]["examples"])
    assert play.get("become", False) == (play["hosts"] != "localhost")
    assert ("Needs root" in role_pages.readme(ROLES / name)) == (play["hosts"] != "localhost")


@pytest.mark.parametrize("name", NAMES)
def test_role_has_checks_of_hosts(name: str) -> None:
    assert (ROLES.parent / "tests" / "infra" / f"test_{name}.py").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_tasks_on_the_controller_do_not_become_root(name: str) -> None:
    delegated = [task for task in tasks(name) if task.get("delegate_to") == "localhost"]
    assert [task["name"] for task in delegated if task.get("become") is not False] == []


@pytest.mark.parametrize("folder", [ROLES, PLAYBOOKS])
def test_names_of_tasks_have_no_pronoun(folder: Path) -> None:
    pronoun = re.compile(r"^ *-? name: .*\b(it|its|them|they|what)\b", re.MULTILINE)
    files = [*folder.glob("**/tasks/*.yml"), *folder.glob("**/handlers/*.yml"), *folder.glob("*.yml")]
    found = {str(path): pronoun.findall(path.read_text()) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("name", NAMES)
def test_variables_have_the_role_s_prefix_and_their_defaults_are_the_documented_ones(name: str) -> None:
    documented = options(name)
    assert [option for option in documented if not option.startswith(f"{name}_")] == []
    defaults: dict[str, Any] = dict(documents(name, "defaults")[0]) if documents(name, "defaults") else {}
    assert sorted(set(defaults) - set(documented)) == []
    plain = {option: value for option, value in defaults.items() if "{{" not in str(value)}
    shown = {option: entry.get("default") for option, entry in documented.items() if option in plain}
    assert {option: plain[option] for option in shown} == shown


def test_lab_of_role_proxmox_vm_is_the_model_of_a_lab() -> None:
    specification = options("proxmox_vm")["proxmox_vm_lab"]["options"]
    assert set(specification) == set(Lab.model_fields)
    assert set(specification["guests"]["options"]) == set(Guest.model_fields)
    [play] = yaml.safe_load(role_pages.specification(ROLES / "proxmox_vm")["main"]["examples"])
    assert validate(Lab, play["vars"]["proxmox_vm_lab"], "example").guests[0].name == "one"


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_pattern_of_hosts_has_no_logic(path: Path) -> None:
    patterns = [play["hosts"] for play in yaml.safe_load(path.read_text()) if "hosts" in play]
    plain = re.compile(r"(\w+|\{\{ \w+ \| default\('lab'\) \}\})(,&\w+)?")
    assert [pattern for pattern in patterns if not plain.fullmatch(pattern)] == []


def test_required_groups_are_those_of_the_command_line() -> None:
    [play] = yaml.safe_load((PLAYBOOKS / "require_lab.yml").read_text())
    assert play["tasks"][0]["loop"] == list(REQUIRED)


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_tasks_is_an_entry_point_or_part_of_one(name: str) -> None:
    files = {path.stem for path in (ROLES / name / "tasks").glob("*.yml")}
    calls = [
        task.get(f"ansible.builtin.{verb}_tasks") for task in tasks(name) for verb in ("import", "include")
    ]
    parts = {Path(call).stem for call in calls if call}
    entries = set(role_pages.specification(ROLES / name))
    assert entries <= files
    assert files - entries - parts == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_written_file_has_a_mode(name: str) -> None:
    writers = ("copy", "template", "file")
    written = [
        task[f"ansible.builtin.{verb}"]
        for task in tasks(name)
        for verb in writers
        if f"ansible.builtin.{verb}" in task
    ]
    assert [call for call in written if "mode" not in call and call.get("state") != "absent"] == []


def test_role_probe_measures_as_much_by_hand_as_in_a_trial() -> None:
    defaults = dict(documents("probe", "defaults")[0])
    assert {name: defaults[f"probe_{name}"] for name in Probes.model_fields} == Probes().model_dump()
