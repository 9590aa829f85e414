"""``lab_files``: text files to content and mode, by one or two shell commands; see library/lab_files.py."""

from __future__ import annotations

import hashlib
import io
import shlex
import tarfile
import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

FILE = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "mode": {"type": "str", "default": "0644"},
}
SPEC = {"files": {"type": "list", "elements": "dict", "required": True, "options": FILE}}
File = dict[str, str]


def look_command(files: list[File]) -> str:
    """Return the command that prints ``path mode digest`` of each file that is there."""
    paths = " ".join(shlex.quote(file["path"]) for file in files)
    line = 'echo "$f 0$(stat -c %a "$f") $(sha256sum < "$f")"'
    return f'for f in {paths}; do [ -f "$f" ] && {line}; done; true'


def wanted_line(file: File) -> str:
    """Return what the command above prints of a file that is as wanted."""
    return f"{file['path']} {file['mode']} {hashlib.sha256(file['content'].encode()).hexdigest()}  -"


def archive(files: list[File]) -> bytes:
    """Return a tar archive of the files, to be unpacked in the root directory."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for file in files:
            content = file["content"].encode()
            info = tarfile.TarInfo(file["path"].lstrip("/"))
            info.size, info.mode, info.mtime = len(content), int(file["mode"], 8), int(time.time())
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Looks, compares, writes."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the task on one host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(SPEC)
        files: list[File] = arguments["files"]
        there = set(self._shell(look_command(files)).splitlines())
        differing = [file for file in files if wanted_line(file) not in there]
        if self._task.diff:
            result["diff"] = [self._difference(file) for file in differing]
        if differing and not self._task.check_mode:
            self._shell("tar -xz --no-same-owner -C /", archive(differing))
        return {**result, "changed": bool(differing), "written": [file["path"] for file in differing]}

    def _difference(self, file: File) -> dict[str, str]:
        """Return Ansible's diff of one file."""
        path = shlex.quote(file["path"])
        found = self._shell(f"[ -f {path} ] && stat -c 0%a {path} && cat {path}; true")
        mode, _, before = found.partition("\n")
        header = {"before_header": f"{file['path']} {mode}", "after_header": f"{file['path']} {file['mode']}"}
        return {**header, "before": before, "after": file["content"]}

    def _shell(self, command: str, stdin: bytes | None = None) -> str:
        """Run a command on the host and return its output."""
        done = self._low_level_execute_command(command, in_data=stdin)
        if done["rc"]:
            raise AnsibleActionFail(f"{command}: {done['stderr'].strip() or done['stdout'].strip()}")
        return str(done["stdout"]).replace("\r\n", "\n")
