"""The guest program: what a lab's host does in a trial, and by hand.

    dasklab-guest carry-out               read an order (JSON) from standard input and print its answers
    dasklab-guest reset                   remove what a trial may have left: impairments, captures, clusters
    dasklab-guest files                   list what the last trial left to be collected
    dasklab-guest PART ACTION [JSON]      take one step, such as: link apply '{"links": [{"delay_ms": 50}]}'

Parts: link, probe, host, cluster, workload, spark, fault, capture, profile.
Exit status: 0 success, 1 failure, 2 wrong usage, 3 this host's kernel or programs cannot do it.
"""

from __future__ import annotations

import json
import sys

from dasklab_guest import order
from dasklab_guest.common import HostError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

USAGE, UNSUPPORTED = 2, 3


def answer(argv: Sequence[str]) -> Any:
    """Do what the command line requests and return the answer."""
    if argv == ["carry-out"]:
        return order.carry_out(json.load(sys.stdin))
    if argv == ["reset"]:
        return order.reset()
    if argv == ["files"]:
        return order.files()
    if len(argv) in (2, 3):
        arguments = json.loads(argv[2]) if len(argv) == 3 else {}
        return order.function_of(f"{argv[0]}.{argv[1]}")(**arguments)
    print(__doc__, file=sys.stderr)
    return sys.exit(USAGE)


def main() -> None:
    """Print the answer as one line of JSON, or a problem as one line of text."""
    try:
        print(json.dumps(answer(sys.argv[1:])))
    except UnsupportedError as error:
        print(f"unsupported: {error}", file=sys.stderr)
        sys.exit(UNSUPPORTED)
    except (HostError, ValueError, TypeError) as error:
        sys.exit(f"dasklab-guest: {error}")


if __name__ == "__main__":
    main()
