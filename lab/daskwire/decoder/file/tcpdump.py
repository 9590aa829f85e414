"""How to record with tcpdump: the options and the filter that daskwire recommends and uses itself.

Dask's headers and messages are in the first bytes of a packet, so 4 KB of each are enough, also of those of
64 KB on a loopback interface; whole ones come faster than a disk writes them. Everything but ssh is recorded:
ARP, ICMP and DNS are evidence, and tunnels may carry Dask.
"""

from __future__ import annotations

SNAPLEN_BYTES = 4096
BUFFER_KIB = 131_072
FILTER = "not port 22"


def options(snaplen_bytes: int = SNAPLEN_BYTES) -> list[str]:
    """Return the options for the size of packets and of the kernel's buffer."""
    return ["-s", str(snaplen_bytes), "-B", str(BUFFER_KIB)]


RECORD = f"tcpdump -i any {' '.join(options())} -w capture.pcap {FILTER}"
EVERYTHING = f"tcpdump {' '.join(options(0))}"  # for packets that were truncated although as recommended
