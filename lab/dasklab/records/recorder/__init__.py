"""The recorder: runs inside the scheduler and every worker, and keeps what Dask knows of a run.

It uses the standard library, Dask and what Dask requires only, because it travels by value (cloudpickle), as
a SchedulerPlugin and a WorkerPlugin: nothing is installed in the cluster.

- **Hooks.** Task states come from the plugins' own ``transition`` methods. What no plugin can see is stamped
  on instances: when a batch of messages leaves, when an event loop was busy, what a transfer spent time on.
- **Harmless.** A hook never raises: its failure is counted and reported. ``detach`` undoes everything. A
  recorder whose records nobody takes for two minutes detaches itself.
- **Bounded.** Rows wait in logs of at most 50,000 each and are packed into compressed chunks of at most 64 MB
  in all (together about 100 MB in a process). Beyond that the oldest are dropped, and the loss is reported.

Times are seconds since 1970 by the process's own clock; Dask's correction of workers' clocks is taken off.
"""
