"""How wrong `dasklab explain` is where the truth is known: its clocks, its answer for a faster network.

    python benchmarks/breakdown_errors.py clocks TRIAL...
    python benchmarks/breakdown_errors.py lifted CAPPED::LIFTED...

``clocks`` takes trials on containers (or namespaces). They share one clock, so the true offset is zero and
each offset is an error. ``lifted`` compares what the replay of a capped trial predicts with a trial of the
same work without the cap. Both take several trials; the last line sums up.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "kind": (("clocks", "lifted"), "what to compare"),
            "trials": ([str], "trials, or pairs of them"),
        },
        smallest="clocks {record}",
    )

import numpy as np
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial


def clocks(trials: Iterable[Path]) -> None:
    """Print the offsets, whose truth is zero, and the bounds that `explain` gives them."""
    offsets = [
        (trial, name, clock)
        for trial in trials
        for name, clock in explain(open_trial(trial)).clocks.items()
        if clock.pairs and np.isfinite(clock.half_s)
    ]
    for trial, name, clock in offsets:
        bounds = f"{1e3 * clock.low_s:+.2f} to {1e3 * clock.high_s:+.2f}"
        skew = f"skew {1e6 * clock.skew:+.1f} ppm"
        print(f"{trial.name} {name}: {1e3 * clock.offset_s:+.3f} ms ({bounds}), {skew}, {clock.pairs} bounds")
    errors = np.array([abs(clock.offset_s) for *_, clock in offsets]) * 1e3
    halves = np.array([clock.half_s for *_, clock in offsets]) * 1e3
    inside = sum(clock.low_s <= 0 <= clock.high_s for *_, clock in offsets)
    linear = sum(clock.linear for *_, clock in offsets)
    print(
        f"{len(offsets)} clocks: error median {np.median(errors):.3f} ms, greatest {errors.max():.3f}; "
        f"half interval median {np.median(halves):.2f}, greatest {halves.max():.2f}; "
        f"truth inside {inside}, linear {linear}"
    )


def lifted(pairs: Iterable[tuple[Path, Path]]) -> None:
    """Print what the replay predicts without the network's time, and what the trial without a cap took."""
    errors = []
    for capped, free in pairs:
        old, new = explain(open_trial(capped)).summary, explain(open_trial(free)).summary
        assert old.replayed and new.replayed
        errors.append(old.replayed.without_wire_s / new.replayed.without_wire_s - 1)
        print(
            f"{capped.name}: took {old.makespan_s:.2f} s, replayed {old.replayed.as_it_was_s:.2f}, "
            f"without wire {old.replayed.without_wire_s:.2f}; lifted {new.makespan_s:.2f}, "
            f"without its wire {new.replayed.without_wire_s:.2f}: {100 * errors[-1]:+.1f} %"
        )
    low, high = 100 * min(errors), 100 * max(errors)
    print(f"{len(errors)} pairs: median {100 * np.median(errors):+.1f} %, {low:+.1f} to {high:+.1f} %")


def _pair(text: str) -> tuple[Path, Path]:
    capped, _, free = text.rpartition("::")
    return Path(capped), Path(free)


def main(args: Namespace) -> None:
    clocks(map(Path, args.trials)) if args.kind == "clocks" else lifted(map(_pair, args.trials))


if __name__ == "__main__":
    main(ARGUMENTS)
