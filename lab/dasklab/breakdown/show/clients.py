"""Sentences about the other users of a cluster: whose tasks had the threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dasklab.breakdown.answers.facts.clients import UNKNOWN, ClientShare, client_shares, foreign_shares
from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.breakdown.show.sentence import Sentence, share_of_threads
from dasklab.terminal import counted, enumerated

TOPIC = "clients"
LEAST_SHARE = 0.01  # of the time of all tasks: less is not mentioned
MOST_CLIENTS = 4


def client_sentences(repeat: Repeat) -> Iterator[Sentence]:
    """Say what other clients' tasks had of the threads, or how several clients shared them."""
    total = sum(share.seconds for share in client_shares(repeat))
    if repeat.extent is Extent.WATCHED:
        clients = [share for share in client_shares(repeat) if share.client != UNKNOWN]
        if len(clients) > 1:
            parts = [f"{share.seconds:.1f} s" for share in clients[:MOST_CLIENTS]]
            more = f", and {len(clients) - MOST_CLIENTS} more" if len(clients) > MOST_CLIENTS else ""
            text = f"{len(clients)} clients used the cluster; their tasks ran for {enumerated(parts)}{more}."
            yield Sentence(TOPIC, text)
        return
    foreign = [share for share in foreign_shares(repeat) if share.seconds > LEAST_SHARE * total]
    with_id = [share for share in foreign if share.client != UNKNOWN]
    if with_id:
        yield _foreign(repeat, f"{_who(with_id)} used the cluster, too", with_id, total)
    unknown = [share for share in foreign if share.client == UNKNOWN]
    if unknown and repeat.graphs:  # without graphs, all clients are unknown: Dask before 2025.4
        title = "Tasks that were there before the recording, of an unknown client"
        yield _foreign(repeat, title, unknown, total)


def _foreign(repeat: Repeat, title: str, shares: Sequence[ClientShare], total_s: float) -> Sentence:
    seconds = share_of_threads(repeat, sum(share.seconds for share in shares))
    return Sentence(TOPIC, f"{title}: {_amount(shares, total_s)}.", seconds)


def _who(shares: Sequence[ClientShare]) -> str:
    return "Another client" if len(shares) == 1 else f"{len(shares)} other clients"


def _amount(shares: Sequence[ClientShare], total_s: float) -> str:
    seconds, tasks = sum(share.seconds for share in shares), sum(share.tasks for share in shares)
    ran = f"{counted(tasks, 'task')} ({shares[0].kind}) ran for {seconds:.1f} s"
    return f"{ran} of the {total_s:.1f} s of all tasks"
