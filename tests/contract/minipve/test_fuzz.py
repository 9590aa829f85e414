"""Send a few hundred mutated requests. Every answer must be valid and free of Python errors.

``benchmarks/endpoint_fuzz.py`` sends fifty thousand.
"""

from __future__ import annotations

import random

from tests.contract import fuzzing
from tests.contract.endpoint import Endpoint

REQUESTS, SEED = 600, 1


def test_mutated_requests_never_cause_a_python_error(own: Endpoint) -> None:
    fuzzer = fuzzing.Fuzzer(own, fuzzing.callers(own), random.Random(SEED))
    fuzzing.prepare(own)
    for _ in range(REQUESTS):
        fuzzer.once()
    fuzzer.close()
    assert fuzzer.faults == []
    assert len(fuzzer.statuses) >= 6, fuzzer.statuses  # the requests reached handlers
    assert own.state is not None
    log = (own.state / "log/endpoint.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]
    assert own.api().version.get()
