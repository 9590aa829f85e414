"""Display filters select the packets of a finding."""

from __future__ import annotations

from daskwire.analysis.problems.detect import display_filter
from daskwire.analysis.problems.finding import Finding
from daskwire.analysis.problems.kinds import KINDS

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read


def test_display_filter_lists_few_connections_and_one_host_of_many(read: Read) -> None:
    cluster = Cluster()
    connections = read(cluster.packets).connections
    few = display_filter(
        Finding(KINDS["loss"], "", when=(SECOND_NS, 2 * SECOND_NS), flows=(0, 1)), connections
    )
    assert few == (
        "(ip.addr == 10.0.0.1 && ip.addr == 10.0.0.2) && (tcp.port == 8786 && tcp.port == 40000) &&"
        " (tcp.analysis.retransmission) && frame.time_epoch >= 0.999000 && frame.time_epoch <= 2.001000"
    )
    for number in range(5, 10):
        cluster.open(f"10.0.0.{number}", 40000)
    connections = read(cluster.packets).connections
    many = display_filter(Finding(KINDS["loss"], "", flows=tuple(range(0, 16, 2))), connections)
    assert many == "ip.addr == 10.0.0.1 && (tcp.analysis.retransmission)"
