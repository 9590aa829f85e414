"""Virtual time: one clock, an event loop per simulated process, the cores they share. Knows no Dask."""

from dasklab.sim.kernel.clock import virtual_time
from dasklab.sim.kernel.host import Host
from dasklab.sim.kernel.kernel import HungError, Kernel
from dasklab.sim.kernel.loop import VirtualLoop, set_unless_done

__all__ = ["Host", "HungError", "Kernel", "VirtualLoop", "set_unless_done", "virtual_time"]
