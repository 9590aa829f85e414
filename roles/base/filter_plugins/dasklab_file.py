"""The filter ``dasklab_file``, for every role that copies files of the Python package dasklab to a host."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ansible.errors import AnsibleFilterError

DOCUMENTATION = """
name: dasklab_file
short_description: The path of a file of the Python package dasklab
description:
  - Works in a checkout and with an installed package. The package is needed on the controller only.
options:
  _input:
    description: A file or folder, relative to the package, for instance C(workloads).
    type: str
    required: true
author: [dasklab]
"""
EXAMPLES = """
workload_source: "{{ 'workloads' | dasklab_file }}"
"""
RETURN = """
_value:
  description: The absolute path.
  type: path
"""


def dasklab_file(name: str) -> str:
    """Return the absolute path of a file or folder of the package, such as ``workloads``.

    Raises:
        AnsibleFilterError: the package is not installed on the controller.
    """
    package = find_spec("dasklab")
    if package is None or package.origin is None:
        raise AnsibleFilterError(f"{name} comes with the Python package dasklab: pip install dasklab")
    return str(Path(package.origin).resolve().parent / name)


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"dasklab_file": dasklab_file}
