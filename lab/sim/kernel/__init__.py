"""Virtual time: one clock, an event loop per simulated process, the cores they share. Knows no Dask."""

from lab.sim.kernel.clock import virtual_time
from lab.sim.kernel.host import Host
from lab.sim.kernel.kernel import HungError, Kernel
from lab.sim.kernel.loop import VirtualLoop, set_unless_done

__all__ = ["Host", "HungError", "Kernel", "VirtualLoop", "set_unless_done", "virtual_time"]
