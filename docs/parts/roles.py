"""The READMEs of roles, from their ``meta/argument_specs.yml``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from dasklab.paths import ROLES

ROOT = "Needs root on the host: `become: true`, unless Ansible connects as root."
NO_ROOT = "Runs on the controller and needs no root by itself."
END = "...\n"  # YAML writes it after a scalar
BAR = r"\|"  # in a table's cell


def roles() -> list[Path]:
    """Return the folders of all roles."""
    return sorted(path for path in ROLES.iterdir() if (path / "meta").is_dir())


def overview() -> str:
    """Return the table of the roles for hosts."""
    rows = ["| role | content |", "|---|---|"]
    for role in roles():
        main = specification(role)["main"]
        if needs_root(main):
            rows.append(
                f"| [{role.name}](../../roles/{role.name}/README.md) | {prose(main['short_description'])} |"
            )
    return "\n".join(rows)


def specification(role: Path) -> dict[str, Any]:
    """Return a role's entry points by name."""
    document = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())
    entries: dict[str, Any] = document["argument_specs"]
    return entries


def readme(role: Path) -> str:
    """Return the README below its title: a summary, an example, the variables, and the other entry points."""
    entries = specification(role)
    main = entries["main"]
    lines = [f"{prose(main['short_description'])}.", ""]
    lines += [line for text in main["description"] for line in (prose(text), "")]
    lines += ["```yaml", main["examples"].rstrip(), "```", ""]
    lines += [ROOT if needs_root(main) else NO_ROOT, ""]
    lines += dependencies(role)
    lines += table(main["options"])
    for name, entry in entries.items():
        if name != "main":
            lines += [f"## `tasks_from: {name}`", "", f"{prose(entry['short_description'])}.", ""]
            lines += [line for text in entry.get("description", []) for line in (prose(text), "")]
            lines += table(entry["options"])
    return "\n".join(lines)


def needs_root(main: dict[str, Any]) -> bool:
    """Return whether a role acts on hosts, as root; the others act on the controller."""
    return "become: true" in main["examples"]


def dependencies(role: Path) -> Iterator[str]:
    """Yield the sentence about the roles that run before this one."""
    meta = yaml.safe_load((role / "meta" / "main.yml").read_text())
    for dependency in meta["dependencies"]:
        name = dependency["role"]
        yield f"Role [{name}](../{name}/README.md) runs first; its variables may be set as well."
        yield ""


def table(options: dict[str, Any]) -> Iterator[str]:
    """Yield the table of variables; nothing if there are none."""
    if options:
        yield "| variable | type | default | meaning |"
        yield "|---|---|---|---|"
        for name, option in flattened(options):
            cells = (f"`{name}`", option.get("type", "str"), default(option), meaning(option))
            yield f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"
        yield ""


def flattened(options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each option with its name, and the keys of a dictionary after it, as ``lab.name``."""
    for name, option in options.items():
        yield name, option
        for inner, entry in flattened(option.get("options", {})):
            yield f"{name}.{inner}", entry


def default(option: dict[str, Any]) -> str:
    """Return an option's default as YAML; one that is computed is explained in the option's description."""
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    text = yaml.safe_dump(option["default"], default_flow_style=True, width=1000)
    return f"`{text.removesuffix(END).strip()}`"


def meaning(option: dict[str, Any]) -> str:
    """Return an option's description with its choices."""
    text = prose(option["description"])
    choices = ", ".join(f"`{choice}`" for choice in option.get("choices", []))
    return f"{text} One of {choices}." if choices else text


def prose(text: str) -> str:
    """Return text in Markdown, from Ansible's own markup."""
    return re.sub(r"[CIVO]\((.*?)\)", r"`\1`", text)
