"""The files between the steps: a type for each JSON file in the directories of a run and of its trials.

Writers, readers and the tests' stand-in for a lab all use these types. Units are in the names; a number that
nobody measured is null. ``trial.json`` is ``dasklab.model.experiments.trial.RequestedTrial``.
"""

from dasklab.model.files.campaign import Campaign
from dasklab.model.files.capture import CaptureReport, Completeness, Tier
from dasklab.model.files.configured import Bridge, Configured, ConfiguredHost, ConfiguredImpairment, Queue
from dasklab.model.files.faults import ObservedFault, ObservedFaults
from dasklab.model.files.hosts import HostFacts, Hosts, Hypervisor
from dasklab.model.files.measured import Measured, Probe, ProbeError, Rtt, Throughput
from dasklab.model.files.quantities import Amount, Count, Counters
from dasklab.model.files.records import (
    CAPTURE_RECORD_FOLDER,
    RECORD_DOCUMENT,
    RECORD_FOLDER,
)
from dasklab.model.files.simulation import Outcome, SimulatedRepeat, Simulation
from dasklab.model.files.timings import (
    Check,
    ObservedCluster,
    Pause,
    Sample,
    SchedulerProcess,
    Timings,
    WorkerProcess,
)
from dasklab.model.files.trial_result import AGAIN, Attempt, Failed, Result, Status

__all__ = [
    "AGAIN",
    "CAPTURE_RECORD_FOLDER",
    "RECORD_DOCUMENT",
    "RECORD_FOLDER",
    "Amount",
    "Attempt",
    "Bridge",
    "Campaign",
    "CaptureReport",
    "Check",
    "Completeness",
    "Configured",
    "ConfiguredHost",
    "ConfiguredImpairment",
    "Count",
    "Counters",
    "Failed",
    "HostFacts",
    "Hosts",
    "Hypervisor",
    "Measured",
    "ObservedCluster",
    "ObservedFault",
    "ObservedFaults",
    "Outcome",
    "Pause",
    "Probe",
    "ProbeError",
    "Queue",
    "Result",
    "Rtt",
    "Sample",
    "SchedulerProcess",
    "SimulatedRepeat",
    "Simulation",
    "Status",
    "Throughput",
    "Tier",
    "Timings",
    "WorkerProcess",
]
