"""Check that no package has grown; part of ``make lint``.

    python tests/house_size.py [--write]

``[tool.house-size]`` in pyproject.toml has a row for each package: lines, modules, and the share of imports
in its lines, in percent. Lines are a cost. A figure above its row fails; ``--write`` lowers the rows to what
there is. Whoever raises a row by hand says in the commit what users get for it.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = ROOT / "pyproject.toml"
NAMES = "lines", "modules", "percent of imports"


def size(folder: Path) -> tuple[int, int, float]:
    """Return the lines and modules below a folder, and the share of imports in the lines, in percent."""
    lines = modules = imports = 0
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        modules += 1
        imports += sum(
            (node.end_lineno or 0) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
        )
    return lines, modules, round(100 * imports / max(lines, 1), 1)


def main() -> int:
    """Compare, or write; return the exit status."""
    text = PYPROJECT.read_text(encoding="utf-8")
    rows: dict[str, list[float]] = tomllib.loads(text)["tool"]["house-size"]
    start = text.index("[tool.house-size]")
    head, text = text[:start], text[start:]
    grown = 0
    for folder, row in rows.items():
        actual = size(ROOT / folder)
        for name, number, limit in zip(NAMES, actual, row, strict=True):
            if number > limit:
                grown += 1
                print(f"{folder} has {number:,} {name}, at most {limit:,}: take away as much as you add")
        lower = ", ".join(str(min(pair)) for pair in zip(actual, row, strict=True))
        text = re.sub(
            rf'^"{re.escape(folder)}" = .*$', f'"{folder}" = [{lower}]', text, count=1, flags=re.MULTILINE
        )
    if "--write" in sys.argv[1:]:
        PYPROJECT.write_text(head + text, encoding="utf-8")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
