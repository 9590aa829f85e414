"""What a network does to messages: shared rates, delay, standing queues, loss. Knows no Dask."""

from dasklab.sim.network.channel import Channel
from dasklab.sim.network.network import Network, Port, Rack

__all__ = ["Channel", "Network", "Port", "Rack"]
