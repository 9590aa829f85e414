"""orders.json: what each host does in each phase of a trial, as the playbook delivers it.

The guest program on a host (``roles/base/files/dasklab_guest``) carries an order out and keeps the answers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict
from dasklab.model.settings.nic import GuestKind, NicSettings

VERSION: Literal[1] = 1  # of the form of an order; the guest program refuses another one


class GuestStep(Strict):
    """One step of an order: ``do`` is PART.ACTION of the guest program."""

    do: str
    arguments: dict[str, Any] = {}


class Order(Strict):
    """The steps of one host in one phase. The ``first`` order of a trial removes what an earlier one left."""

    version: Literal[1] = VERSION
    phase: str
    first: bool = False
    steps: tuple[GuestStep, ...]


class Phase(Strict):
    """A part of a trial that all hosts finish before the next begins.

    Attributes:
        orders: by host; hosts without an order wait.
        at_once: how many hosts work at the same time, 0 for all.
        bridge: the mode of the lab bridge that is set before.
        look: whether the node's counters are read before.
    """

    name: str
    orders: dict[str, Order]
    at_once: int = 0
    bridge: Literal["learning", "flooding"] | None = None
    look: bool = False


class TrialOrders(Strict):
    """A whole trial.

    Attributes:
        phases: in their sequence.
        guests, nics: the kind and the lab NIC that each guest needs.
        packages: versions that differ from the pins; role ``dask`` installs them in ``venv``.
        venv: the folder of the virtual environment that everything runs in.
        spark: whether role ``spark`` is needed.
    """

    phases: tuple[Phase, ...]
    guests: dict[str, GuestKind]
    nics: dict[str, NicSettings]
    packages: dict[str, str]
    venv: str
    spark: bool


class Orders(Document):
    """The file. The playbook reads it itself: extra variables would be templates."""

    FILE: ClassVar[str] = "orders.json"

    trial: TrialOrders


class LabHost(Strict):
    """What the inventory says of a host, as far as orders depend on it.

    Attributes:
        role: what the host is in the cluster.
        address: its lab address.
        scheduler_address: the lab address of the scheduler.
        venv: the virtual environment with the pinned packages.
        processes, threads: worker processes, and threads of each; 0 threads means one per core.
        scheduler_command: in place of Dask's own scheduler; "" for that.
        records: whether scheduler and workers keep records for the time breakdown.
        spark_cores: the cores of a Spark worker; 0 for all.
    """

    role: Literal["client", "scheduler", "worker"]
    address: str
    scheduler_address: str
    venv: str = "/opt/dask"
    processes: int = 1
    threads: int = 0
    scheduler_command: str = ""
    records: bool = True
    spark_cores: int = 0
