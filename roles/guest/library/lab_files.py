#!/usr/bin/python
"""Write several files in one go: on an emulated guest, each module run costs about a second."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: lab_files
short_description: Write several text files at once
description:
  - Brings every file to its content and mode; missing directories are made, owned by root, mode 0755.
  - Does in one module run what a loop over C(ansible.builtin.copy) does in three runs for each file.
options:
  files:
    description: What to write.
    type: list
    elements: dict
    required: true
    options:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The whole text of the file., type: str, required: true}
      mode: {description: Permissions as an octal string., type: str, default: "0644"}
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [dasklab]
"""

EXAMPLES = r"""
- name: Two files
  lab_files:
    files:
      - {path: /etc/dask/dasklab.yaml, content: "distributed: {}\n"}
      - {path: /opt/dasklab/bin/hello, content: "#!/bin/sh\necho hello\n", mode: "0755"}
"""

RETURN = r"""
written: {description: Paths of the files that were not as wanted., type: list, returned: always}
"""


def observe(path: Path) -> tuple[str, str]:
    """Return content and mode of a file as they are; both empty if there is none."""
    if not path.is_file():
        return "", ""
    return path.read_text(errors="replace"), f"{path.stat().st_mode & 0o7777:04o}"


def difference(wanted: dict[str, Any]) -> dict[str, str] | None:
    """Return Ansible's diff of one file, or None if it is as wanted."""
    path = wanted["path"]
    content, mode = observe(Path(path))
    if (content, mode) == (wanted["content"], wanted["mode"]):
        return None
    return {
        "before_header": f"{path} {mode or '(none)'}",
        "after_header": f"{path} {wanted['mode']}",
        "before": content,
        "after": wanted["content"],
    }


def write(wanted: dict[str, Any]) -> None:
    """Write one file so that a reader sees the old one or the new one, never a part."""
    path = Path(wanted["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(wanted["content"])
    draft.chmod(int(wanted["mode"], 8))
    draft.replace(path)


def main() -> None:
    """Compare, write what differs, report."""
    options = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str", "default": "0644"},
    }
    spec = {"type": "list", "elements": "dict", "required": True, "options": options}
    module = AnsibleModule(argument_spec={"files": spec}, supports_check_mode=True)
    diffs = {file["path"]: difference(file) for file in module.params["files"]}
    differing = [file for file in module.params["files"] if diffs[file["path"]]]
    try:
        for file in differing if not module.check_mode else []:
            write(file)
    except OSError as error:
        module.fail_json(msg=f"cannot write {error.filename}: {error.strerror}")
    written = [file["path"] for file in differing]
    module.exit_json(changed=bool(written), written=written, diff=[diffs[path] for path in written])


if __name__ == "__main__":
    main()
