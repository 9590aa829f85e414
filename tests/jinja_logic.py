"""Count the Jinja expressions with logic in roles and playbooks.

    python -m tests.jinja_logic        prints every one with its file

An expression is what stands between braces, and each condition of ``when``, ``changed_when``,
``failed_when``, ``until`` and ``that``. It has logic if it is more than a variable, an attribute or an item
of one, a constant, or a list of those, with filters that fill in a default or serialize (``PLAIN``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from dasklab.paths import PLAYBOOKS, ROLES
from jinja2 import Environment, TemplateSyntaxError, nodes

CONDITIONS = ("when", "changed_when", "failed_when", "until", "that")
PLAIN = {"default", "bool", "quote", "to_json", "from_json", "dasklab_file"}
SIMPLE = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Getitem),
    *(nodes.Const, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword),
)


def expressions(path: Path) -> Iterator[str]:
    """Yield the expressions of a file as templates."""
    text = path.read_text()
    if path.suffix == ".j2":
        yield from re.findall(r"\{\{.*?\}\}|\{%-? *(?:if|for|set|elif) .*?%\}", text, re.DOTALL)
    else:
        for value, key in values(yaml.safe_load(text)):
            found = re.findall(r"\{\{.*?\}\}(?!\})", value, re.DOTALL)
            yield from found
            if key in CONDITIONS and not found:
                yield f"{{{{ {value} }}}}"


def values(document: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a document, with the key that it belongs to. A bool is no expression."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from values(value, name)
    elif isinstance(document, list):
        for value in document:
            yield from values(value, key)
    elif isinstance(document, str):
        yield document, key


def has_logic(expression: str) -> bool:
    """Return whether an expression is more than a value that is passed on."""
    if expression.startswith("{%"):
        return True
    environment = Environment(autoescape=False)
    try:
        tree = environment.parse(expression)
    except TemplateSyntaxError:
        return True
    for node in tree.find_all(nodes.Node):
        if isinstance(node, nodes.Filter):
            if node.name not in PLAIN:
                return True
        elif not isinstance(node, SIMPLE):
            return True
    return False


def counted() -> list[str]:
    """Return all expressions with logic, each with its file."""
    files = [path for folder in (ROLES, PLAYBOOKS) for path in sorted(folder.rglob("*"))]
    return [
        f"{path.relative_to(ROLES.parent)}: {' '.join(expression.split())}"
        for path in files
        if path.suffix in {".yml", ".j2"} and "meta" not in path.parts and "filter_plugins" not in path.parts
        for expression in expressions(path)
        if has_logic(expression)
    ]


if __name__ == "__main__":
    lines = counted()
    print(*lines, sep="\n")
    print(len(lines))
