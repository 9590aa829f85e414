"""Check that the project is written in plain English; part of ``make lint``.

    python tests/plain_language.py [PATH...]

Five things are counted in the files that Git knows:

* **names**: variables and parameters that are bare participles or pointers (``found``, ``given``, ``each``);
* **docstrings** of four words or fewer, which rarely say more than the name does;
* **classes**: names that two modules of one package define, so that a reader has to know which is meant;
* **words** that the glossary replaces (``docs/glossary.md``, third column, in code type), in Markdown,
  docstrings, comments and help;
* **breaks**: rows of one or two words in the middle of a sentence of a docstring, left by a wrong wrap.

A count above its limit fails, and every place is printed. Tests are checked for words only.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
PACKAGES = ("lab/dasklab", "lab/daskwire", "lab/minipve")
PARTICIPLES = (
    "asked became become began begun brought called came done ended felt found given gone got heard held"
    " kept known lain lay made meant missed named said seen sent shown spared stood taken thought told wanted"
    " written"
)
POINTERS = "both each here one such there these those whom whose"
VAGUE = frozenset(f"{PARTICIPLES} {POINTERS}".split())
FEW_WORDS = 4
# Lower a limit when you have removed some.
LIMITS = {"names": 12, "docstrings": 25, "classes": 0, "words": 13, "breaks": 0}


@dataclass
class Places:
    """Where each kind of trouble is: ``file:line: text``."""

    names: list[str] = field(default_factory=list)
    docstrings: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)


def glossary_words(text: str) -> re.Pattern[str]:
    """Return a pattern of all words in code type in the third column of the glossary's table."""
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    words = [word for row in rows for word in re.findall(r"`([^`]+)`", row[3])]
    return re.compile(
        r"\b(" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + r")\b", re.IGNORECASE
    )


def assigned_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield names that are assigned to, and parameters, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield docstrings with the lines they begin in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield text, node.body[0].lineno


def comments(source: str) -> Iterator[tuple[str, int]]:
    """Yield comments with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]


def help_texts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the literal ``help=`` of calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            yield str(node.value.value), node.value.lineno


def prose(source: str, tree: ast.AST | None) -> Iterator[tuple[str, int]]:
    """Yield the lines that a person reads, with their numbers."""
    parts = [(source, 1)] if tree is None else [*docstrings(tree), *help_texts(tree), *comments(source)]
    for text, first in parts:
        yield from ((line, number) for number, line in enumerate(text.splitlines(), first))


def check(paths: list[str]) -> Places:
    """Read every Python and Markdown file that Git knows below ``paths``."""
    places, owners = Places(), defaultdict[tuple[str, str], set[str]](set)
    words = glossary_words(GLOSSARY.read_text())
    argv = ["git", "ls-files", *paths]
    listing = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listing.splitlines():
        path = ROOT / name
        if path.suffix not in {".py", ".md"} or path == GLOSSARY or not path.exists():
            continue
        source = path.read_text()
        tree = ast.parse(source) if path.suffix == ".py" else None
        for text, line in prose(source, tree):
            places.words += [f"{name}:{line}: {match[0]}" for match in words.finditer(text)]
        if tree is not None and not name.startswith("tests/"):
            check_code(name, tree, places)
            for class_name in class_names(tree):
                owners[package_of(name), class_name].add(name)
    shared = {name: sorted(files) for (package, name), files in owners.items() if package and len(files) > 1}
    places.classes = [f"{name}: {', '.join(files)}" for name, files in shared.items()]
    return places


def check_code(name: str, tree: ast.AST, places: Places) -> None:
    """Add the vague names and the short docstrings of one file."""
    for word, line in assigned_names(tree):
        if word.strip("_") in VAGUE:
            places.names.append(f"{name}:{line}: {word}")
    for text, line in docstrings(tree):
        if len(text.split()) <= FEW_WORDS:
            places.docstrings.append(f"{name}:{line}: {text.strip()}")
        places.breaks += [f"{name}:{line + index}: {row.strip()}" for index, row in broken_rows(text)]


def broken_rows(text: str) -> Iterator[tuple[int, str]]:
    """Yield rows of one or two words in the middle of a sentence: a paragraph that was wrapped wrongly."""
    rows = text.splitlines()
    for index, (before, row, after) in enumerate(zip(rows, rows[1:], rows[2:], strict=False), start=1):
        goes_on = len(before.split()) > FEW_WORDS and after.strip()[:1].islower()
        if goes_on and re.fullmatch(r"\s*[A-Za-z]+( [A-Za-z]+)?", row):
            yield index, row


def class_names(tree: ast.AST) -> list[str]:
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def package_of(name: str) -> str:
    """Return the package that a file belongs to, "" outside of all."""
    return next((package for package in PACKAGES if name.startswith(f"{package}/")), "")


def main() -> int:
    """Print what is above its limit; 1 if anything is."""
    places = vars(check(sys.argv[1:]))
    excess = {kind: entries for kind, entries in places.items() if len(entries) > LIMITS[kind]}
    for kind, entries in excess.items():
        print(f"{kind}: {len(entries)}, at most {LIMITS[kind]}", *entries, sep="\n  ")
    return bool(excess)


if __name__ == "__main__":
    sys.exit(main())
