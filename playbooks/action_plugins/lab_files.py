"""``lab_files``: files to content and mode, by one or two shell commands; see library/lab_files.py."""

from __future__ import annotations

import hashlib
import io
import shlex
import tarfile
import time
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template
from dasklab import atomic

SPEC = {
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "path", "required": True},
            "content": {"type": "str"},
            "src": {"type": "path"},
            "template": {"type": "path"},
            "mode": {"type": "str", "default": "0644"},
        },
        "mutually_exclusive": [("content", "src", "template")],
        "required_one_of": [("content", "src", "template")],
    },
    "directory": {"type": "path", "default": "/"},
}


class File(NamedTuple):
    """A file as it is wanted on the host."""

    path: str
    data: bytes
    mode: str


def look_command(files: list[File]) -> str:
    """Return the command that prints mode and digest of each file that is there, by two processes in all."""
    paths = " ".join(shlex.quote(file.path) for file in files)
    return f"stat -c '0%a  %n' -- {paths} 2>/dev/null; sha256sum -- {paths} 2>/dev/null; true"


def wanted_lines(file: File) -> set[str]:
    """Return what the command above prints of a file that is as wanted."""
    return {f"{file.mode}  {file.path}", f"{hashlib.sha256(file.data).hexdigest()}  {file.path}"}


def told_of(lines: set[str]) -> set[str]:
    """Return the paths of the files that are there, of what the command above prints."""
    return {line.partition("  ")[2] for line in lines}


def archive(files: list[File]) -> bytes:
    """Return a tar archive of the files, to be unpacked in the root directory."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for file in files:
            info = tarfile.TarInfo(file.path.lstrip("/"))
            info.size, info.mode, info.mtime = len(file.data), int(file.mode, 8), int(time.time())
            tar.addfile(info, io.BytesIO(file.data))
    return stream.getvalue()


def text(data: bytes) -> str | None:
    """Return the text that the data are, for a diff; None if they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class ActionModule(ActionBase):  # type: ignore[misc]
    """Looks, compares, writes."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the task on one host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(SPEC)
        root = PurePosixPath(arguments["directory"])
        files = [
            File(str(root / file["path"]), self._data(file), file["mode"]) for file in arguments["files"]
        ]
        there = set(self._shell(look_command(files)).splitlines())
        differing = [file for file in files if not wanted_lines(file) <= there]
        if self._task.diff:
            result["diff"] = [self._difference(file) for file in differing]
        if differing and not self._task.check_mode:
            self._write(differing)
        written, found = [file.path for file in differing], told_of(there)
        replaced = [path for path in written if path in found]
        return {**result, "changed": bool(written), "written": written, "replaced": replaced}

    def _write(self, files: list[File]) -> None:
        """Write all files: on the controller itself, where results are, each at once or not at all."""
        if self._connection.transport != "local" or self._play_context.become:
            self._shell("tar -x --no-same-owner -C /", archive(files))
            return
        for file in files:
            try:
                with atomic.replaced(Path(file.path), int(file.mode, 8)) as draft:
                    draft.write_bytes(file.data)
            except OSError as error:
                raise AnsibleActionFail(f"{error.filename}: {error.strerror}") from error

    def _data(self, file: dict[str, str | None]) -> bytes:
        """Return the wanted content; a file is looked for where ``copy`` and ``template`` would look."""
        if file["content"] is not None:
            return file["content"].encode()
        if file["src"] is not None:
            return Path(self._find_needle("files", file["src"])).read_bytes()
        # not by Ansible's lookup, which copies all variables of all hosts for each template
        text = trust_as_template(Path(self._find_needle("templates", file["template"])).read_text())
        return str(self._templar.template(text)).encode()

    def _difference(self, file: File) -> dict[str, str]:
        """Return Ansible's diff of one file; of one that is no text, how long it is."""
        path, after = shlex.quote(file.path), text(file.data)
        show = f"wc -c < {path}" if after is None else f"cat {path}"
        found = self._shell(f"[ -f {path} ] && stat -c 0%a {path} && {show}; true")
        mode, _, before = found.partition("\n")
        header = {"before_header": f"{file.path} {mode}", "after_header": f"{file.path} {file.mode}"}
        return {**header, "before": before, "after": f"{len(file.data)}\n" if after is None else after}

    def _shell(self, command: str, stdin: bytes | None = None) -> str:
        """Run a command on the host and return its output."""
        done = self._low_level_execute_command(command, in_data=stdin)
        if done["rc"]:
            raise AnsibleActionFail(f"{command}: {done['stderr'].strip() or done['stdout'].strip()}")
        return str(done["stdout"]).replace("\r\n", "\n")
