"""The tables of what Dask recorded: columns, units and meaning. docs/reference/records.md shows the same.

Times named ``*_s`` are seconds since 1970 by the clock that the column names; the table `clock` and the
stamps of messages show how far apart clocks are. What was not recorded is null.
"""

from __future__ import annotations

REPEAT = {"repeat": "number of the repeat, as in timings.json; 0 in the record of a cluster"}
TABLES: dict[str, dict[str, str]] = {
    "repeats": REPEAT
    | {
        "form": "format of the record that holds it; what its format lacks is unknown, not absent",
        "warmup": "whether it is a warm-up",
        "start_s": "when it began, client's clock",
        "stop_s": "when it ended, client's clock",
        "lost": "processes whose memory for records was full: the oldest records are missing",
    },
    "clock": REPEAT
    | {
        "asked_s": "when the client asked the scheduler for its records, client's clock",
        "now_s": "when the scheduler answered, scheduler's clock",
        "answered_s": "when the answer had arrived, client's clock",
    },
    "workers": REPEAT
    | {
        "worker": "its name",
        "address": "where it listens",
        "threads": "number of its threads",
        "loop": "its event loop; busy intervals are recorded for asyncio's only",
        "joined_s": "when it joined, scheduler's clock; null if it was there before",
        "left_s": "when it left, scheduler's clock; null if it stayed",
    },
    "tasks": REPEAT
    | {
        "key": "task key",
        "worker": "the worker that computed it",
        "thread": "the thread that computed it",
        "waiting_s": "when the scheduler had it in a graph, scheduler's clock (as the next four)",
        "queued_s": "when the scheduler kept it back because all workers had enough",
        "decided_s": "when its worker was chosen",
        "due_s": "until when Dask's timer held back what is sent to this worker",
        "sent_s": "when the batch with its compute-task left the scheduler",
        "arrived_s": "when its worker handled the compute-task, worker's clock (as the next eight)",
        "ready_s": "when all data that it needs was there",
        "executing_s": "when it was given to a thread",
        "start_s": "when its computation began",
        "stop_s": "when its computation ended",
        "seceded_s": "when it gave its thread back to wait for tasks of its own (worker_client)",
        "done_s": "when the event loop knew that it had ended",
        "report_due_s": "until when Dask's timer held back what is sent to the scheduler",
        "reported_s": "when the batch with its task-finished left the worker",
        "handled_s": "when the scheduler had handled that, scheduler's clock",
        "trigger": "key of the task whose end made the scheduler choose; empty for another reason",
        "stimulus": "what made the scheduler choose: task-finished, update-graph, ...",
        "disk_s": "seconds of reading from and writing to disk for it",
        "nbytes": "size of its result in bytes, as Dask estimates it",
        "type": "type of its result",
        "status": "OK, error, lost (its worker left), cancelled (it ran on), rescheduled, unfinished, or"
        " the state in which it was left",
        "cpu_s": "seconds of CPU that its thread had for it; null where the system does not say it",
        "cpu_waiting_s": "seconds for which its thread could run, but waited for a CPU",
        "cpu_turns": "how often its thread was put on a CPU",
    },
    "errors": REPEAT
    | {
        "key": "a task of which an attempt failed",
        "worker": "where",
        "time_s": "when the worker knew of it, worker's clock",
        "type": "type of the error; empty if its text does not begin with one",
        "text": "the error as text, at most 200 characters; empty with code=False",
    },
    "graphs": REPEAT
    | {
        "graph": "its number",
        "client": "id of the client that sent it",
        "begin_s": "when Dask's client received it from the user's code, client's clock; null for others",
        "sent_s": "when it was packed and handed over to be sent, client's clock",
        "received_s": "when the scheduler had it, scheduler's clock",
        "nbytes": "bytes sent",
        "tasks": "number of its tasks",
        "materialise_s": "seconds for unpacking it and making single tasks",
        "order_s": "seconds for culling and ordering them",
        "state_s": "seconds for making the scheduler's states",
        "file": "file of the user's line that sent it; empty with code=False",
        "line": "number of that line; with code=False any number that is the same for the same line",
        "code": "text of that line",
    },
    "introduced": REPEAT
    | {
        "graph": "number of a graph; 0 for tasks that were there before the recording",
        "key": "key of one of its tasks",
        "client": "id of the client whose task it is; empty if unknown",
        "span": "name of the task's span, the outermost first, separated by /",
    },
    "calls": REPEAT
    | {
        "kind": "sync (the user's code waits), wait, gather (results move), scatter (data moves)",
        "start_s": "when the client's call began, client's clock",
        "stop_s": "when it returned",
        "keys": "number of objects",
        "nbytes": "their size in bytes, as Dask estimates it",
        "file": "file of the user's line",
        "line": "number of that line",
        "code": "text of that line",
        "missing": "how many of the results that it needs were not there when it began",
    },
    "lines": REPEAT
    | {
        "start_s": "since when the user's program ran a line, client's clock; looked at 20 times a second",
        "stop_s": "until when",
        "waits": "1 if it waited in Dask's client, 2 if Dask computed without the cluster, 3 if Dask built a"
        " graph, else 0",
        "file": "file of the line, or name of its notebook cell; empty with code=False",
        "line": "number of the line; with code=False any number that is the same for the same line",
        "code": "text of the line",
    },
    "needs": REPEAT
    | {
        "key": "a task that needs another task's result",
        "worker": "the worker that was to compute it",
        "needed": "key of what it needs",
        "nbytes": "size in bytes, as Dask estimates it",
        "holders": "workers that had it when the task arrived, separated by the character U+001F",
    },
    "fetches": REPEAT
    | {
        "receiver": "the worker that requested data",
        "sender": "the worker that has the data",
        "start_s": "when the data was requested, receiver's clock",
        "stop_s": "when it was there and deserialised, receiver's clock",
        "deserialise_s": "seconds of decompressing and deserialising",
        "serve_start_s": "when the sender began to handle the request, sender's clock",
        "serve_stop_s": "when the receiver had confirmed, sender's clock",
        "serialise_s": "seconds of serialising and compressing",
        "keys": "keys that were requested, separated by the character U+001F",
        "status": "OK, or busy: to be requested again",
    },
    "shards": REPEAT
    | {
        "sender": "the worker that sent shards of a peer-to-peer shuffle to another one",
        "receiver": "the worker that they were for",
        "start_s": "when it began to send them, sender's clock",
        "stop_s": "when the receiver had answered, sender's clock",
        "nbytes": "their size in bytes, as Dask estimates it",
    },
    "busy": REPEAT
    | {
        "node": "client, scheduler or worker",
        "start_s": "when its event loop became busy (or was kept from running), its own clock",
        "stop_s": "when it waited again",
        "late_s": "seconds at the beginning for which it was kept from running",
    },
    "cpu": REPEAT
    | {
        "node": "client, scheduler or worker",
        "time_s": "when it was sampled, its own clock",
        "cpu_s": "seconds of CPU that its threads have had",
        "waiting_s": "seconds for which its threads have waited for a CPU; of the client those of the user's"
        " program and of the event loop",
        "loop_waiting_s": "seconds for which the thread of its event loop has waited for a CPU",
        "memory_bytes": "resident memory",
        "loop_cpu_s": "seconds of CPU that the thread of its event loop has had",
        "held_s": "seconds for which its threads have held Python's interpreter: all of the time before each"
        " of ten looks a second that had to wait for it; null where the system does not say it",
        "machine_s": "seconds of CPU that all programs of its machine have had; null where nobody looked",
    },
    "machines": REPEAT
    | {
        "node": "client, scheduler or worker",
        "machine": "the boot of the kernel that it runs on, which containers of one machine share",
        "cpus": "number of the machine's CPUs; 0 if unknown",
    },
    "pauses": REPEAT
    | {
        "node": "scheduler or worker",
        "start_s": "when a garbage collection of more than 1 ms began, its own clock",
        "stop_s": "when it ended",
    },
    "stacks": REPEAT
    | {
        "node": "client, scheduler or worker; at most 100 rows a minute of each process",
        "time_s": "when a thread was looked at, its own clock",
        "seconds": "how much time before that the sample stands for",
        "reason": "blocked (an event loop ran without waiting for 0.05 s), waiting (a task used no CPU),"
        " held (nobody else could use the interpreter)",
        "key": "the task that the thread ran; empty for an event loop",
        "activity": "import, lock (of the process), sizeof, spill, unpickle, deserialise, pickle,"
        " serialise, or empty",
        "name": "package that is imported, or class of the lock; empty with code=False",
        "stack": "its 12 innermost frames, the outermost first: name (file:line)",
    },
    "waits": REPEAT
    | {
        "worker": "where a task waited while it kept its thread",
        "start_s": "since when, worker's clock",
        "stop_s": "until when",
        "key": "the task",
        "kind": "Lock, Event, Queue, ...; Client (results of its own tasks); held (it held a lock);"
        " sizeof (its result was measured)",
        "name": "name of the primitive",
    },
    "actor_calls": REPEAT
    | {
        "worker": "where the actor lives",
        "start_s": "when a call of one of its methods began, worker's clock",
        "stop_s": "when it ended",
        "actor": "key of the actor",
        "function": "name of the method",
    },
    "events": REPEAT
    | {
        "time_s": "when, scheduler's clock",
        "kind": "what happened: lost (a result), worker-status-change, add-worker, gather, ...",
        "subject": "task, worker or client that it happened to",
        "detail": "more, as JSON",
    },
    "results": REPEAT
    | {
        "time_s": "when the scheduler told the client that a result is there, scheduler's clock",
        "key": "its key",
    },
    "load": REPEAT
    | {
        "time_s": "when it was sampled, scheduler's clock",
        "worker": "the worker",
        "processing": "tasks assigned to it that have not ended",
        "occupancy_s": "seconds of work that the scheduler expects of these",
        "queued": "tasks that the scheduler keeps back, for all workers",
    },
    "memory": REPEAT
    | {
        "time_s": "when the heartbeat that says so arrived, scheduler's clock",
        "worker": "the worker",
        "process_bytes": "resident memory of its process",
        "managed_bytes": "results that Dask keeps in it, as Dask estimates them; the rest of it is unmanaged",
        "spilled_bytes": "results that are on its disk",
        "limit_bytes": "its memory limit; null if it has none",
    },
    "steals": REPEAT
    | {
        "time_s": "when, scheduler's clock",
        "kind": "request, confirm, already-computing, ...",
        "key": "task key",
        "victim": "the worker that loses the task",
        "thief": "the worker that gets it",
    },
    "metrics": REPEAT
    | {
        "node": "scheduler (sums of all workers as of their last heartbeat) or worker",
        "metric": "Dask's fine metric (context/span/prefix/activity/unit), or the kernel's of the process",
        "value": "by how much it rose in the repeat",
    },
    "profiles": REPEAT
    | {
        "worker": "whose threads; only if Dask's profile is on (distributed.worker.profile.enabled)",
        "stack": "what they were doing, outermost frame first: name (file:line)",
        "seconds": "number of samples times their interval",
    },
    "bandwidths": REPEAT
    | {
        "receiver": "receiving worker; empty for all workers",
        "sender": "sending worker; empty for all workers",
        "bytes_per_s": "Dask's estimate of the bandwidth after the repeat",
    },
    "delays": REPEAT
    | {
        "node": "worker",
        "time_s": "when, its own clock",
        "delay_s": "Dask's estimate of the scheduler's clock minus this one",
    },
    "interfaces": REPEAT
    | {
        "node": "client, scheduler or worker",
        "name": "name of a network interface of its host that is up (hardware only)",
        "address": "one of its addresses",
        "mbit": "its speed in Mbit/s, as the kernel states it",
    },
    "config": {
        "node": "scheduler or worker",
        "setting": "name of a setting below distributed",
        "value": "in force in the first repeat, as JSON",
    },
}
