"""The states of a channel: the table of transitions, and what always holds in each state."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from dasklab.sim.network import Channel
from dasklab.sim.network.channel import TRANSITIONS, ChannelEvent, ChannelState

from tests.unit.dasklab.sim.machines import BIG, Machines, port

# A flow starts in OPEN only and ends in BUSY only. The timer runs only after a cut, which is noticed once.
IMPOSSIBLE = {
    *((state, ChannelEvent.BULK_STARTS) for state in ChannelState if state is not ChannelState.OPEN),
    *((state, ChannelEvent.BULK_ENDS) for state in ChannelState if state is not ChannelState.BUSY),
    *((state, ChannelEvent.PATH_CUT) for state in (ChannelState.SILENT, ChannelState.STALLED)),
    *((state, ChannelEvent.TIMER_FIRES) for state in (ChannelState.OPEN, ChannelState.BUSY)),
}


class WatchedChannel(Channel):
    """A channel that notes its transitions."""

    def __init__(self, machines: Machines, source: str, target: str) -> None:
        super().__init__(machines.network, source, target)
        self.moves: set[tuple[ChannelState, ChannelEvent]] = set()

    def _move(self, event: ChannelEvent) -> None:
        self.moves.add((self.state, event))
        super()._move(event)

    def check(self) -> None:
        has_flow, is_cut = self._flow is not None, self.state in (ChannelState.SILENT, ChannelState.STALLED)
        assert has_flow == (self.state in (ChannelState.BUSY, ChannelState.STALLED))
        assert is_cut or not self._unacknowledged
        assert self not in self._network.flowing or self.state is ChannelState.BUSY


def test_every_event_is_handled_or_impossible_in_every_state() -> None:
    assert set(TRANSITIONS).isdisjoint(IMPOSSIBLE)
    assert set(TRANSITIONS) | IMPOSSIBLE == set(itertools.product(ChannelState, ChannelEvent))


def test_every_state_is_reached_from_open_and_left_for_it() -> None:
    steps = {(state, following) for (state, _), following in TRANSITIONS.items()}
    for steps_from in (steps, {(following, state) for state, following in steps}):
        reached = {ChannelState.OPEN}
        while found := {after for before, after in steps_from if before in reached} - reached:
            reached |= found
        assert reached == set(ChannelState)


@pytest.mark.parametrize(("state", "event"), sorted(IMPOSSIBLE, key=str))
def test_impossible_event_is_an_error(state: ChannelState, event: ChannelEvent) -> None:
    channel = Channel(Machines().network, "a", "b")
    channel.state = state
    with pytest.raises(KeyError):
        channel._move(event)


def test_random_traffic_walks_the_whole_table_and_keeps_the_invariants() -> None:
    moves: set[tuple[ChannelState, ChannelEvent]] = set()
    for seed in range(20):
        dice, machines = Random(seed), Machines(seed=seed, b=port(delay_s=0.05, loss=0.01))
        channels = [WatchedChannel(machines, *ends) for ends in ("ab", "ac", "cb")]
        for channel in channels:
            machines.channels[">".join(channel.ends)] = channel
            for _ in range(30):
                machines.send(">".join(channel.ends), dice.choice([100, BIG]), dice.uniform(0, 4))
            for _ in range(4):
                machines.kernel.at(dice.uniform(0, 5), channel.drop)
        for machine in "abc":
            machines.cut(machine, dice.uniform(0, 4), dice.choice([0.01, 0.5]))

        def check(watched: list[WatchedChannel] = channels) -> bool:
            for channel in watched:
                channel.check()
            return False

        machines.kernel.run_until(check)
        moves |= {move for channel in channels for move in channel.moves}
        assert {channel.state for channel in channels} == {ChannelState.OPEN}
    assert moves == set(TRANSITIONS)
