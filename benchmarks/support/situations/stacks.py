"""What keeps an event loop or makes a task wait, where a look at the stack shows it."""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from distributed import Client, LocalCluster

from .situation import rest, situation, spread, vary

MODULE = "slow_to_import"


@contextlib.contextmanager
def slow_module(client: Client, cluster: LocalCluster, chance: random.Random) -> Iterator[None]:
    """Have a module that takes long to import where workers find it; the client has imported it."""
    with tempfile.TemporaryDirectory() as folder:
        text = f"import time\ntime.sleep({vary(chance, 1.5)})\n"
        Path(folder, f"{MODULE}.py").write_text(f"{text}def square(number):\n    return number ** 2\n")

        def find() -> None:
            sys.path.insert(0, folder)

        find()
        client.run(find)
        importlib.import_module(MODULE)
        try:
            yield
        finally:
            sys.path.remove(folder)
            del sys.modules[MODULE]


@situation(
    "worker lag",
    around=slow_module,
    advice=("imports in the event loop",),
    wrong_advice=("interpreter", "one long task", "few long tasks"),
)
def import_on_the_loop(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks arrive with a function of a module that each worker imports first, in its event loop.

    To be said: event loops of the workers were blocked by an import, of this module. Wrong: something keeps
    the interpreter; tasks that take long. (https://github.com/LiberTEM/LiberTEM/issues/218)
    """
    function = sys.modules[MODULE].square
    client.gather(client.map(function, range(12), pure=False))


@situation("locks", "outside", threads_per_worker=2, wrong_advice=("locks",))
def lock_inside_a_library(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A library has one lock for each process, around all that it reads, as h5py has.

    "Outside of Dask" is true as well. To be said: tasks waited for a lock of the process. Wrong: a lock of
    Dask, storage that is slow. (https://github.com/dask/distributed/issues/2942)
    """
    length = vary(chance, 0.3)

    def read(number: int) -> int:
        import threading

        lock = vars(threading).setdefault("_lock_of_the_library", threading.RLock())
        with lock:
            rest(length)
        return number

    client.gather(spread(client, read, range(12)))


@situation("computing", "interpreter", "worker lag", threads_per_worker=2)
def sorting_keeps_the_interpreter(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Python's sort does not release the interpreter, so nothing else runs in the process meanwhile.

    To be said: tasks ``order`` keep the interpreter. Wrong: waiting for something outside.
    """
    size = int(vary(chance, 700_000))

    def order(seed: int) -> int:
        generator = random.Random(seed)
        numbers = [generator.random() for _ in range(size)]
        return len([sorted(numbers) for _ in range(3)])

    client.gather(spread(client, order, range(6)))
