"""All that the kinds of problems read. What a single kind needs is in its own module."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from daskwire.analysis.problems.evidence.connects import FailedConnects, Failure, failed_connects
from daskwire.analysis.problems.evidence.heartbeats import Lateness, heartbeat_lateness
from daskwire.analysis.problems.evidence.losses import Losses, divide_losses
from daskwire.analysis.problems.evidence.traffic import Node, Traffic
from daskwire.decoder.dask.framing.content import MessageKind
from daskwire.decoder.dask.nodes.identities import Endpoint

SCHEDULER_PORT = 8786  # the default
CUT_MESSAGE_SHARE = 0.02
MIN_ONE_WAY_SEGMENTS = 5  # a connection with fewer may have ended before its answer


class Evidence(Traffic):
    """The traffic of a capture, and what several kinds of problems derive from it."""

    @cached_property
    def losses(self) -> Losses:
        """Packets that did not arrive, by the problem that explains them."""
        return divide_losses(self)

    @cached_property
    def failed_connects(self) -> list[FailedConnects]:
        return list(failed_connects(self))

    def connects_that(self, failure: Failure) -> list[FailedConnects]:
        return [group for group in self.failed_connects if group.failure == failure]

    def is_dask_port(self, address: str, port: int) -> bool:
        """Return whether Dask listens here: by its messages, or by the scheduler's default port."""
        return port == SCHEDULER_PORT or (address, port) in self._dask_endpoints

    @cached_property
    def _dask_endpoints(self) -> set[Endpoint]:
        """Both ends of all connections that carry Dask, and what its messages name."""
        nodes, senders = self.capture.nodes, self.capture.senders
        ends = {senders[2 * number + side] for number in self.capture.conversations for side in (0, 1)}
        return ends | set(nodes.schedulers) | set(nodes.listening)

    @cached_property
    def lateness(self) -> dict[Node, Lateness]:
        """Late heartbeats of each worker, sorted by worker."""
        return heartbeat_lateness(self)

    @cached_property
    def one_way(self) -> tuple[list[int], int]:
        """The flows whose opposite direction was not captured, and the number of complete connections."""
        number = np.diff(self.capture.lanes.begin)
        missing = self.capture.extents.missing
        single = [
            flow
            for flow in self.flows
            if number[flow] >= MIN_ONE_WAY_SEGMENTS and not number[flow ^ 1] and missing[flow ^ 1] > 0
        ]
        return single, sum(1 for flow in self.flows if flow % 2 == 0 and number[flow ^ 1])

    @cached_property
    def is_one_way(self) -> bool:
        """Whether nearly all connections have one direction only: then the capture point is wrong."""
        single, complete = self.one_way
        return len(single) > 9 * complete

    @cached_property
    def is_cut(self) -> bool:
        """Whether the snaplen cost the content of more than a few messages."""
        messages = self.capture.messages
        return int((messages.kind == MessageKind.CUT).sum()) >= CUT_MESSAGE_SHARE * max(len(messages), 1)
