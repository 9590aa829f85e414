"""Build the Ansible collection ``dasklab.lab`` from the checkout.

    python collection/build.py        writes build/dasklab-lab-VERSION.tar.gz

A collection keeps all plugins in ``plugins/``, also those that lie in a role here, and its files use the full
names of its plugins and roles. Both are done in a copy, ``build/collection``.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build"
FOLDERS = {  # here -> in the collection
    "filter_plugins": "filter",
    "callback_plugins": "callback",
    "strategy_plugins": "strategy",
    "action_plugins": "action",
    "library": "modules",
}
PLUGINS = ("*_plugins", "library", "__pycache__")


def collect(stage: Path) -> None:
    """Copy what belongs to the collection into its layout."""
    for name in ("roles", "playbooks"):
        shutil.copytree(ROOT / name, stage / name, ignore=shutil.ignore_patterns(*PLUGINS))
    for source in plugin_files():
        target = stage / "plugins" / FOLDERS[source.parent.name]
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    shutil.copy(ROOT / "galaxy.yml", stage)
    shutil.copy(ROOT / "LICENSE", stage)
    shutil.copy(ROOT / "collection" / "README.md", stage)
    shutil.copytree(ROOT / "meta", stage / "meta")


def plugin_files() -> list[Path]:
    """Return the plugins of the playbooks and roles, and the files that document them."""
    folders = [
        path
        for name in FOLDERS
        for path in (ROOT / "playbooks", *ROOT.glob("roles/*"))
        if (path / name).is_dir()
    ]
    names = [path for folder in folders for path in folder.glob("*/*") if path.parent.name in FOLDERS]
    return sorted({path for path in names if path.suffix in {".py", ".yml"}})


def filters(source: Path) -> Iterator[str]:
    """Yield the names of the filters that a plugin defines: the keys of what ``filters`` returns."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "filters":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Dict):
                    yield from (key.value for key in inner.keys if isinstance(key, ast.Constant))


def qualify(text: str, collection: str, filter_names: list[str], roles: list[str], modules: list[str]) -> str:
    """Return YAML or a template in which filters, roles and modules have their full names."""
    names = "|".join(map(re.escape, filter_names))
    text = re.sub(rf"(\|\s*)({names})\b", rf"\1{collection}.\2", text)
    names = "|".join(map(re.escape, roles))
    text = re.sub(
        rf"^(\s*(?:- )?role: |\s+name: )({names})$", rf"\1{collection}.\2", text, flags=re.MULTILINE
    )
    names = "|".join(map(re.escape, modules))
    return re.sub(rf"^(\s+)({names}):$", rf"\1{collection}.\2:", text, flags=re.MULTILINE)


def build() -> Path:
    """Build the collection and return its archive."""
    stage = TARGET / "collection"
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    collect(stage)
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    full_name = f"{galaxy['namespace']}.{galaxy['name']}"
    filter_names = [name for path in stage.glob("plugins/filter/*.py") for name in filters(path)]
    roles = [path.name for path in (stage / "roles").iterdir()]
    modules = [path.stem for path in stage.glob("plugins/modules/*.py")]
    for path in (*stage.glob("roles/**/*"), *stage.glob("playbooks/**/*")):
        if path.suffix in {".yml", ".j2"}:
            path.write_text(qualify(path.read_text(), full_name, filter_names, roles, modules))
    command = [str(Path(sys.executable).parent / "ansible-galaxy"), "collection", "build", str(stage)]
    subprocess.run([*command, "--output-path", str(TARGET), "--force"], check=True)
    return TARGET / f"{galaxy['namespace']}-{galaxy['name']}-{galaxy['version']}.tar.gz"


if __name__ == "__main__":
    build()
