"""Virtual time: one clock, an event loop for each simulated process, the cores they share. Knows no Dask."""

from dasklab.sim.kernel.clock import virtual_time
from dasklab.sim.kernel.host import Host
from dasklab.sim.kernel.kernel import HungError, Kernel
from dasklab.sim.kernel.loop import VirtualLoop, resolve

__all__ = ["Host", "HungError", "Kernel", "VirtualLoop", "resolve", "virtual_time"]
