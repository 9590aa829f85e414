"""What roles need of each other is declared, without a circle; contracts, defaults and READMEs agree."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab.paths import SHARE as ROOT

ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
END = "...\n"  # that YAML writes after a bare value
ON_HOSTS = {"base", "guest", "dask", "spark", "netem", "probe", "fault", "profile", "capture", "workload"}


@cache
def files(role: Path, *folders: str) -> list[Path]:
    """A role's files, but for prose."""
    found = (path for path in role.rglob("*") if path.is_file() and path.suffix not in (".md", ".pyc"))
    return [path for path in found if not folders or path.relative_to(role).parts[0] in folders]


@cache
def text_of(role: Path) -> str:
    """All that a role's files say."""
    return "\n".join(path.read_text() for path in files(role))


@cache
def documents(role: Path, *folders: str) -> list[Any]:
    """The YAML files of some folders of a role, parsed."""
    read = (path.read_text() for path in files(role, *folders) if path.suffix == ".yml")
    return [yaml.load(text, yaml.CSafeLoader) for text in read]


def mappings(document: Any) -> list[dict[str, Any]]:
    """All mappings in a document, however deep."""
    if isinstance(document, list):
        return [each for part in document for each in mappings(part)]
    if isinstance(document, dict):
        return [document, *(each for part in document.values() for each in mappings(part))]
    return []


@cache
def owned_names(role: Path) -> set[str]:
    """What is a role's own: its programs and templates, its units, the paths it writes, its variables."""
    programs = {path.name for path in files(role, "files", "templates", "library")}
    text = text_of(role)
    units = {path.name.removesuffix(".service.j2") for path in files(role, "templates")}
    units |= set(re.findall(r"--unit=([\w-]+)", text)) | set(re.findall(r'"(dasklab-[\w-]+)', text))
    paths = set(re.findall(r'(?:path|dest): "?(/[\w/.-]+)', text))
    variables = {name for document in documents(role, "defaults", "vars") for name in document}
    for mapping in (each for document in documents(role, "tasks") for each in mappings(document)):
        variables |= {mapping["register"]} if "register" in mapping else set()
        variables |= set(mapping.get("ansible.builtin.set_fact", {}))
    return programs | units | paths | variables


@cache
def named(role: Path) -> set[str]:
    """What the files of a role name: words, paths, file names; not the inventory's groups."""
    return set(re.findall(r"[\w/.-]+", re.sub(r"groups\['\w+'\]", "", text_of(role))))


def stopped_patterns(role: Path) -> set[str]:
    """The patterns of units that a role stops or kills."""
    lines = [line for line in text_of(role).splitlines() if "systemctl" in line]
    return {word for line in lines for word in re.findall(r"'([\w-]+\*)'", line)}


@cache
def imported(role: Path) -> set[str]:
    """The modules that a role's programs import."""
    trees = [ast.parse(path.read_text()) for path in files(role) if path.suffix == ".py"]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.py" for node in nodes}


def needs(role: Path) -> dict[str, set[str]]:
    """The other roles that a role needs, and by what it was found out."""
    found: dict[str, set[str]] = {}
    calls = [
        mapping.get(f"ansible.builtin.{verb}_role")
        for verb in ("import", "include")
        for document in documents(role, "tasks", "handlers")
        for mapping in mappings(document)
    ]
    for call in filter(None, calls):
        found.setdefault(call["name"], set()).add("its tasks")
    for other in ROLES:
        names = owned_names(other)
        common = names & (named(role) | imported(role))
        common |= {name for name in names for pattern in stopped_patterns(role) if fnmatch(name, pattern)}
        if common - owned_names(role):
            found.setdefault(other.name, set()).update(common - owned_names(role))
    found.pop(role.name, None)
    return found


def declared(role: Path) -> set[str]:
    """The roles that a role's meta/main.yml declares."""
    meta = yaml.safe_load((role / "meta" / "main.yml").read_text())
    return {dependency["role"] for dependency in meta["dependencies"]}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_declares_the_roles_that_it_needs_and_no_others(role: Path) -> None:
    assert {name: why for name, why in needs(role).items() if name not in declared(role)} == {}
    assert declared(role) - set(needs(role)) == set()


def test_roles_need_each_other_in_no_circle() -> None:
    order = list(TopologicalSorter({role.name: declared(role) for role in ROLES}).static_order())
    assert set(order) == {role.name for role in ROLES}


def test_a_role_of_the_hosts_knows_the_base_and_no_other() -> None:
    assert {role.name for role in ROLES} >= ON_HOSTS
    assert {name: declared(ROOT / "roles" / name) for name in ON_HOSTS} == {
        name: set() if name == "base" else {"base"} for name in ON_HOSTS
    }


def test_a_role_that_others_depend_on_does_nothing_where_it_is_not_called() -> None:
    """Ansible runs a dependency's main.yml with each import of a role: it would cost every trial time."""
    depended = {name for role in ROLES for name in declared(role)}
    assert [name for name in depended if (ROOT / "roles" / name / "tasks" / "main.yml").exists()] == []


def entries(role: Path) -> dict[str, Any]:
    """A role's contract: its entry points with their options."""
    specs: dict[str, Any] = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())
    return dict(specs["argument_specs"])


def contract(role: Path) -> dict[str, dict[str, Any]]:
    """The options of all entry points."""
    return {
        name: option for each in entries(role).values() for name, option in each.get("options", {}).items()
    }


def row(name: str, option: dict[str, Any]) -> str:
    """The line of a README about an option."""
    written = yaml.safe_dump(option.get("default"), default_flow_style=True, width=1000)
    default = f"`{written.removesuffix(END).strip()}`" if "default" in option else "see defaults"
    text = re.sub(r"[CI]\((.*?)\)", r"`\1`", option["description"])
    if "choices" in option:
        text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
    return f"| `{name}` | {'required' if option.get('required') else default} | {text} |"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_role_explains_every_option_of_its_contract(role: Path) -> None:
    readme = (role / "README.md").read_text()
    assert [name for name in contract(role) if f"`{name}`" not in readme] == []
    assert [name for name in contract(role) if not name.startswith(role.name)] == []


@pytest.mark.parametrize("name", sorted(ON_HOSTS))
def test_a_readme_says_of_each_option_what_the_contract_says(name: str) -> None:
    role = ROOT / "roles" / name
    lines = (role / "README.md").read_text().splitlines()
    assert [line for each in contract(role).items() if (line := row(*each)) not in lines] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_role_s_defaults_are_those_of_its_contract(role: Path) -> None:
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    options = contract(role)
    assert sorted(set(defaults) - set(options)) == []
    plain = {name: value for name, value in defaults.items() if "{{" not in str(value)}
    said = {name: option["default"] for name, option in options.items() if "default" in option}
    assert {name: plain[name] for name in said if name in plain} == {n: said[n] for n in said if n in plain}


@pytest.mark.parametrize("name", sorted(ON_HOSTS))
def test_every_file_of_tasks_is_an_entry_that_is_explained_or_part_of_one(name: str) -> None:
    role = ROOT / "roles" / name
    there = {path.name for path in files(role, "tasks")}
    explained = set(re.findall(r"`(?:tasks_from: )?(\w+\.yml)`", (role / "README.md").read_text()))
    explained |= {f"{entry}.yml" for entry in entries(role)}
    explained -= {"main.yml"} - there  # that contract is of all entries
    parts = set(re.findall(r"(?:import|include)_tasks: (\w+\.yml)", text_of(role)))
    assert explained <= there
    assert there - explained - parts == set()


PROGRAMS = sorted((ROOT / "roles").glob("*/files/dasklab_*.py"))


def installed(role: Path) -> list[str]:
    """The programs that a role installs, those that all share among them."""
    written = documents(ROOT / "roles" / "base", "vars") + documents(role, "tasks", "vars")
    sources = {str(each["src"]) for each in mappings(written) if {"path", "src"} <= set(each)}
    return [Path(source).name for source in sorted(sources)]


@pytest.mark.parametrize("name", ["guest", "netem", "probe", "capture"])
def test_a_host_s_programs_run_by_python_s_own_library_and_what_is_installed_with_them(
    name: str, tmp_path: Path
) -> None:
    """Each import costs an emulated guest tens of milliseconds: typing is for the reader and mypy alone."""
    role = ROOT / "roles" / name
    found = {path.name: path for path in PROGRAMS}
    for file in installed(role):
        shutil.copy(found[file], tmp_path)
    module = {"guest": "dasklab_host", "netem": "dasklab_link"}.get(name, f"dasklab_{name}")
    script = f"import sys; sys.path.append({str(tmp_path)!r}); import {module}; print(list(sys.modules))"
    done = subprocess.run([sys.executable, "-SsE", "-c", script], capture_output=True, text=True, check=True)
    assert f"'{module}'" in done.stdout
    assert "'typing'" not in done.stdout
