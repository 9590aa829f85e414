"""The kinds of problems: what each one means, when it is reported, and what to do.

docs/reference/wire-problems.md is generated from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

COSTLY_S = 0.5  # seconds that Dask messages waited; a finding that cost less is a note


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    Attributes:
        name: its name in tables.
        meaning: what happened.
        threshold: when it is a problem.
        advice: what to check or change.
        filter: display filter for its packets, in addition to addresses and time.
        effects: kinds that are its consequences if they concern the same host at the same time.
        is_sudden: its consequences do not begin before it.
        is_first: it prevents other findings, so it comes before them.
    """

    name: str
    meaning: str
    threshold: str
    advice: str
    filter: str = ""
    effects: frozenset[str] = frozenset()
    is_sudden: bool = False
    is_first: bool = False


LATE = frozenset({"late heartbeats", "slow connects"})
LOST = frozenset({"retransmission time-outs", "loss", "half-open connection", "reordering"}) | LATE
FAILED = frozenset({"mid-stream reset", "refused connects", "unanswered connects"})

KINDS = {kind.name: kind for kind in (
    Kind("undecoded capture",
         "Nothing of Dask could be decoded.",
         "no Dask message, although packets may carry Dask: tunnels, unsupported link types, IP fragments",
         "Record inside the tunnel, or name the tunnel's port with --tunnel.",
         is_first=True),
    Kind("TLS without keys",
         "Connections are encrypted: only sizes, times and TCP's own figures are known.",
         "at least as many bytes are encrypted as are decoded",
         "Start the processes with SSLKEYLOGFILE and give the file with --key-log.", "tls",
         is_first=True),
    Kind("wrong capture point",
         "The capture does not contain traffic that Dask's own messages prove.",
         "workers report transfers from other workers, and none is in the capture; or some workers have no"
         " connection with the scheduler in it; or all connections have one direction only",
         "Record on every worker, on a mirror port of the switch or on the bridge, and give all files.",
         "", frozenset({"incomplete capture", "asymmetric path"}), is_first=True),
    Kind("incomplete capture",
         "Packets are missing from the capture although the network delivered them.",
         "1 % of the stream bytes were acknowledged but not captured; or truncated packets cost the content"
         " of 2 % of the messages; or 1 % of the packets were not decoded",
         "Record with a larger buffer (tcpdump -B 262144), with -s 0, and to a faster disk.",
         is_first=True),
    Kind("duplicate IP",
         "Two hosts use the same IP address, so packets reach one or the other.",
         "the packets of an IP address have two MAC addresses of its own in alternation, or both announce it"
         " by ARP",
         "Find the second host by its MAC address (ip neigh, the switch's table), and change its address.",
         "arp || tcp.flags.reset == 1", FAILED | LOST),
    Kind("MTU black hole",
         "Large packets vanish while small ones pass: a link has a smaller MTU than the senders assume.",
         "a segment was sent at least 4 times over 1 s or more and never acknowledged, and no segment as"
         " large was acknowledged between these hosts, although smaller ones were",
         "Compare the MTU of all interfaces on the path (ping -M do -s 1472), and let ICMP pass.",
         "tcp.analysis.retransmission && tcp.len >= 400",
         frozenset({"mid-stream reset", "blocked worker loop", "zero window"}) | LOST),
    Kind("half-open connection",
         "A host keeps connections that their other end no longer answers.",
         "a segment was sent at least 4 times over 1 s or more, and the peer never answered on that"
         " connection again",
         "Check whether the peer's host is up, and whether a firewall forgot the connection.",
         "tcp.analysis.retransmission || tcp.analysis.keep_alive",
         frozenset({"unanswered connects", "retransmission time-outs", "loss"}) | LATE),
    Kind("retransmission time-outs",
         "For a while no packet passed, so TCP waited for its timer.",
         f"gaps of 180 ms or more until a retransmission cost {COSTLY_S} s, in few episodes",
         "Look for a flapping link or a frozen host: ip -s link, dmesg, the switch's log.",
         "tcp.analysis.retransmission",
         frozenset({"unanswered connects", "loss", "blocked worker loop"}) | LATE),
    Kind("loss",
         "Packets are lost again and again in one direction.",
         "at least 5 segments in 4 separate episodes, and 0.1 % of the data segments between two hosts, and"
         f" their retransmission cost {COSTLY_S / 2} s in all: the sender slows down as well",
         "Check error and drop counters on the path: ip -s link, ethtool -S, tc -s qdisc.",
         "tcp.analysis.retransmission", frozenset({"retransmission time-outs"}) | LATE),
    Kind("reordering",
         "Packets overtake each other in one direction, so TCP retransmits without need.",
         "at least 10 segments, and 0.5 % of the data segments from one host to another",
         "Look for parallel paths without flow hashing, such as bonding in mode balance-rr.",
         "tcp.analysis.out_of_order", frozenset({"loss"})),
    Kind("slow link",
         "A link carries much less than the others.",
         "bulk data of a pair, or of all pairs of a host, flows evenly at less than a third of the rate of"
         f" other pairs, and that cost {COSTLY_S} s",
         "Check negotiated speed, rate limits and shared uplinks: ethtool, tc qdisc, the hypervisor.",
         "tcp.len > 0", frozenset({"loss", "retransmission time-outs", "bufferbloat"}) | LATE),
    Kind("bufferbloat",
         "Packets wait in a long queue whenever a link is busy.",
         f"under load the RTT is at least 50 ms longer than the smallest one, and that cost {COSTLY_S} s",
         "Shorten the queue (tc qdisc replace dev ... fq_codel), or limit the rate of the senders.",
         "tcp.analysis.ack_rtt > 0.05", frozenset({"loss", "retransmission time-outs"}) | LATE),
    Kind("delayed ACKs",
         "Small writes wait for the receiver's delayed acknowledgement (Nagle's algorithm).",
         "at least 10 segments were sent right after an ACK that came 35 to 60 ms or 180 to 220 ms late, and"
         f" that cost {COSTLY_S} s",
         "Set TCP_NODELAY, or write each message at once.", "tcp.analysis.ack_rtt > 0.03"),
    Kind("asymmetric path",
         "Packets of a connection take another path than their answers.",
         "one direction of some connections is not in the capture, though it was acknowledged, and most"
         " connections have both",
         "Compare the routes of both hosts (ip route get), and look for two interfaces in one subnet.",
         "tcp.analysis.ack_lost_segment", frozenset({"incomplete capture", "unanswered connects"})),
    Kind("wrong interface",
         "A worker announces an address in another network than the rest of the cluster.",
         "its address is not the one from which it reaches the scheduler, while other workers' is, and its"
         " data is fetched there",
         "Start the worker with --interface or --host of the fast network.", "",
         frozenset({"slow link", "bufferbloat"}) | LOST),
    Kind("refused connects",
         "Nobody listens where a process connects to.",
         f"connections were refused after the start-up of the cluster for {COSTLY_S} s",
         "Check whether the process on that port has ended, and why.", "tcp.flags.reset == 1"),
    Kind("unanswered connects",
         "Nothing answers attempts to connect.",
         f"SYNs had no answer, or only a later one had, after the start-up of the cluster for {COSTLY_S} s",
         "Check whether the host is up, firewalls on the path, and whether the listener's backlog is full.",
         "tcp.flags.syn == 1 && tcp.flags.ack == 0", LATE),
    Kind("slow connects",
         "Connecting takes long, in TCP or in Dask's handshake.",
         "more than 1 s until the ACK of the SYN-ACK, or until the second half of Dask's handshake",
         "A late handshake is a busy event loop; a late SYN-ACK is the network.",
         "tcp.flags.syn == 1"),
    Kind("mid-stream reset",
         "A connection was reset while it was in use.",
         "an RST during the work of the cluster, with a message, a reply or a task's report outstanding, or"
         " followed by a new connection between the same hosts",
         "Look in the log of the process that sent the RST, and for firewalls that reject connections.",
         "tcp.flags.reset == 1",
         frozenset({"refused connects", "retransmission time-outs", "half-open connection"}) | LATE, True),
    Kind("lost worker",
         "A worker's process ended in the middle of the work.",
         "its host closed its connection with the scheduler more than 1 s before the end of the work, and no"
         " message had announced it",
         "Look in the log of the worker and its nanny, and in dmesg for: Out of memory: Killed process.",
         "tcp.flags.fin == 1 || tcp.flags.reset == 1", frozenset({"mid-stream reset", "refused connects"})),
    Kind("zero window",
         "A process does not read what it receives, so its peers must wait.",
         f"a receive window of 0 stopped peers that had more to send for {COSTLY_S} s in all",
         "Look at the receiving process: its event loop is blocked, or it is stopped or short of CPU.",
         "tcp.window_size_value == 0 || tcp.analysis.window_update", LATE),
    Kind("slow scheduler loop",
         "The scheduler's event loop is busy, so all its peers wait for answers.",
         f"heartbeats waited for an answer for more than 0.3 s, and {COSTLY_S} s in all",
         "Profile the scheduler; look for large graphs, plugins and extensions.", "",
         frozenset({"zero window"}) | LATE),
    Kind("blocked worker loop",
         "A worker's event loop was blocked: it sent nothing although a heartbeat was due.",
         "no message of the worker for 1 s or more within a late interval between its heartbeats",
         "Look for code that holds the GIL or blocks the loop, and for a stopped or swapped-out process.", "",
         frozenset({"zero window"}) | LATE),
    Kind("late heartbeats",
         "A worker's heartbeats come late although it sends other messages.",
         "intervals of more than twice what the scheduler requested and 1 s longer, 3 of them or 25 % of all",
         "Compare the worker's CPU with its threads; the scheduler removes workers after worker-ttl."),
    Kind("erred tasks", "Tasks ended with an exception.", "any", "See the exception on the client."),
    Kind("busy workers", "Workers put off requests for data because too many are open.", "always a note",
         "Raise distributed.worker.connections.incoming, or move less data."),
    Kind("disordered file", "Packets in the file are not in order of time.", "always a note",
         "Nothing: they are sorted."),
)}  # fmt: skip
