"""The tables of what Dask recorded: their columns, units and meaning. README.md shows the same.

Times named ``*_s`` are seconds since 1970 by the clock that the column names; ``clocks`` tells how far apart
these are. What was not recorded is null.
"""

from __future__ import annotations

RUN = {"run": "the run's number, as in timings.json"}
TABLES: dict[str, dict[str, str]] = {
    "runs": RUN
    | {
        "warmup": "it is a warm-up",
        "start_s": "begin of what was timed, client's clock",
        "stop_s": "its end, client's clock",
        "asked_s": "after it the scheduler was asked for its records, client's clock",
        "now_s": "when the scheduler was asked, scheduler's clock",
        "answered_s": "when its answer had come, client's clock",
        "lost": "processes whose logs were full: what they recorded first is missing",
    },
    "workers": RUN
    | {
        "worker": "its name",
        "address": "where it listens",
        "threads": "number of its threads",
        "loop": "its event loop; busy spells are known of asyncio's only",
    },
    "tasks": RUN
    | {
        "key": "task key",
        "worker": "who computed it",
        "thread": "which of its threads",
        "waiting_s": "the scheduler learnt of it, scheduler's clock (so are the next three)",
        "decided_s": "its worker was chosen",
        "due_s": "until then Dask's timer held back what is sent to this worker",
        "sent_s": "the batch with its compute-task left the scheduler",
        "arrived_s": "its compute-task was handled, worker's clock (so are the next eight)",
        "ready_s": "all that it needs was there",
        "executing_s": "it was given to a thread",
        "start_s": "its computation began",
        "stop_s": "and ended",
        "done_s": "the event loop knew",
        "report_due_s": "until then Dask's timer held back what is sent to the scheduler",
        "reported_s": "the batch with its task-finished left the worker",
        "handled_s": "the scheduler had dealt with that, scheduler's clock",
        "trigger": "key of the task whose end made the scheduler choose; empty if it was something else",
        "stimulus": "what made the scheduler choose: task-finished, update-graph, ...",
        "disk_s": "seconds of reading from and writing to disk for it",
        "nbytes": "size of its result, as Dask estimates it",
        "type": "type of its result",
        "status": "OK or error",
    },
    "graphs": RUN
    | {
        "begin_s": "Dask's client was given it, client's clock",
        "sent_s": "it was packed and handed over to be sent, client's clock",
        "received_s": "the scheduler had it, scheduler's clock",
        "nbytes": "its size when sent",
        "tasks": "tasks in it",
        "materialise_s": "seconds for unpacking it and making single tasks of it",
        "order_s": "for culling and ordering them",
        "state_s": "for making the scheduler's states",
    },
    "needs": RUN
    | {
        "key": "a task that needs another's result",
        "worker": "who was to compute it",
        "needed": "key of what it needs",
        "nbytes": "its size, as Dask estimates it",
        "holders": "workers that had it when the task was sent",
    },
    "fetches": RUN
    | {
        "receiver": "worker that asked for data",
        "sender": "worker that was asked",
        "start_s": "when it asked, receiver's clock",
        "stop_s": "when all was there and deserialised, receiver's clock",
        "deserialise_s": "seconds of that for decompressing and deserialising",
        "serve_start_s": "the request was taken up, sender's clock",
        "serve_stop_s": "the receiver's thanks had come, sender's clock",
        "serialise_s": "seconds of that for serialising and compressing",
        "keys": "what was asked for",
        "status": "OK, or busy: asked to come again",
    },
    "busy": RUN
    | {
        "node": "scheduler or worker",
        "start_s": "its event loop became busy (or was kept from running), its own clock",
        "stop_s": "it waited again",
    },
    "transitions": RUN
    | {
        "key": "task key",
        "start": "state before",
        "finish": "state after",
        "stimulus": "what caused it",
        "time_s": "when, scheduler's clock",
    },
    "load": RUN
    | {
        "time_s": "when, scheduler's clock",
        "worker": "of whom",
        "processing": "tasks that the scheduler has given it and that are not done",
        "occupancy_s": "seconds of work that the scheduler thinks these are",
        "queued": "tasks that the scheduler keeps back, of all workers",
    },
    "steals": RUN
    | {
        "time_s": "when, scheduler's clock",
        "kind": "request, confirm, already-computing, ...",
        "key": "task key",
        "victim": "from whom",
        "thief": "to whom",
    },
    "metrics": RUN
    | {
        "node": "scheduler (all workers' sums as of their last heartbeat) or worker",
        "metric": "Dask's fine metric: context/span/prefix/activity/unit; process: what the kernel says",
        "value": "by how much it rose in the run",
    },
    "profiles": RUN
    | {
        "worker": "whose threads; only where Dask's profile is on (distributed.worker.profile.enabled)",
        "stack": "what they were found doing, outermost frame first: name (file:line)",
        "seconds": "how often, times the interval between looks",
    },
    "bandwidths": RUN
    | {
        "receiver": "who received; empty: all workers",
        "sender": "who sent; empty: all workers",
        "bytes_per_s": "bandwidth that Dask believed in after the run",
    },
    "delays": RUN
    | {
        "node": "worker",
        "time_s": "when, its own clock",
        "delay_s": "what Dask then took for the scheduler's clock minus this one",
    },
    "config": {
        "node": "scheduler or worker",
        "setting": "name of a setting below distributed",
        "value": "in force in the first run, as JSON",
    },
}
