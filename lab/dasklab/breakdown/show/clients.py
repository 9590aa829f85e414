"""Sentences about the other users of a cluster: whose tasks had the threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dasklab.breakdown.answers.facts.clients import UNKNOWN, ClientShare, client_shares, foreign_shares
from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.terminal import counted, enumerated

LEAST_SHARE = 0.01  # of the time of all tasks: less is not mentioned
MOST_CLIENTS = 4


def client_sentences(repeat: Repeat) -> Iterator[str]:
    """Say what other clients' tasks had of the threads, or how several clients shared them."""
    total = sum(share.seconds for share in client_shares(repeat))
    if repeat.extent is Extent.WATCHED:
        clients = [share for share in client_shares(repeat) if share.client != UNKNOWN]
        if len(clients) > 1:
            parts = [f"{share.seconds:.1f} s" for share in clients[:MOST_CLIENTS]]
            more = f", and {len(clients) - MOST_CLIENTS} more" if len(clients) > MOST_CLIENTS else ""
            yield f"{len(clients)} clients used the cluster; their tasks ran for {enumerated(parts)}{more}."
        return
    foreign = [share for share in foreign_shares(repeat) if share.seconds > LEAST_SHARE * total]
    with_id = [share for share in foreign if share.client != UNKNOWN]
    if with_id:
        yield f"{_who(with_id)} used the cluster, too: {_amount(with_id, total)}."
    if unknown := [share for share in foreign if share.client == UNKNOWN]:
        yield f"Tasks that were there before the recording, of an unknown client: {_amount(unknown, total)}."


def _who(shares: Sequence[ClientShare]) -> str:
    return "Another client" if len(shares) == 1 else f"{len(shares)} other clients"


def _amount(shares: Sequence[ClientShare], total_s: float) -> str:
    seconds, tasks = sum(share.seconds for share in shares), sum(share.tasks for share in shares)
    ran = f"{counted(tasks, 'task')} ({shares[0].kind}) ran for {seconds:.1f} s"
    return f"{ran} of the {total_s:.1f} s of all tasks"
