"""PVE 9's privileges and built-in roles (facts from pve-access-control)."""

from __future__ import annotations

# area -> level -> privileges. PVE<area>Admin has admin, user and audit; PVE<area>User has user and audit.
_LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "VM": {
        "admin": (
            "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network", "VM.Config.HWType",
            "VM.Config.Options", "VM.Allocate", "VM.Clone", "VM.Migrate", "VM.Snapshot",
            "VM.Snapshot.Rollback", "VM.Replicate", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileWrite",
            "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.Unrestricted",
        ),
        "user": ("VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.Backup", "VM.PowerMgmt"),
        "audit": ("VM.Audit", "VM.GuestAgent.Audit"),
    },
    "Sys": {
        "root": ("Sys.PowerMgmt", "Sys.Modify", "Sys.Incoming", "Sys.AccessNetwork"),
        "admin": ("Sys.Console", "Sys.Syslog"),
        "audit": ("Sys.Audit",),
    },
    "Datastore": {
        "admin": ("Datastore.Allocate", "Datastore.AllocateTemplate"),
        "user": ("Datastore.AllocateSpace",),
        "audit": ("Datastore.Audit",),
    },
    "SDN": {"admin": ("SDN.Allocate",), "user": ("SDN.Use",), "audit": ("SDN.Audit",)},
    "User": {"root": ("Realm.Allocate",), "admin": ("User.Modify", "Group.Allocate", "Realm.AllocateUser")},
    "Pool": {"admin": ("Pool.Allocate",), "user": ("Pool.Audit",), "audit": ("Pool.Audit",)},
    "Mapping": {"admin": ("Mapping.Modify",), "user": ("Mapping.Use",), "audit": ("Mapping.Audit",)},
    "Permissions": {"root": ("Permissions.Modify",)},
}  # fmt: skip


def _of(areas: list[str], *levels: str) -> frozenset[str]:
    return frozenset(priv for area in areas for level in levels for priv in _LEVELS[area].get(level, ()))


_ALL = list(_LEVELS)
PRIVILEGES = _of(_ALL, "root", "admin", "user", "audit")

BUILTIN_ROLES: dict[str, frozenset[str]] = {
    "Administrator": PRIVILEGES,
    "NoAccess": frozenset(),
    "PVEAdmin": _of(_ALL, "admin", "user", "audit"),
    "PVEAuditor": _of(_ALL, "audit"),
    "PVEVMAdmin": _of(["VM"], "admin", "user", "audit"),
    "PVEVMUser": _of(["VM"], "user", "audit"),
    "PVETemplateUser": frozenset({"VM.Audit", "VM.Clone"}),
    "PVEDatastoreAdmin": _of(["Datastore"], "admin", "user", "audit"),
    "PVEDatastoreUser": _of(["Datastore"], "user", "audit"),
    "PVESDNAdmin": _of(["SDN"], "admin", "user", "audit"),
    "PVESDNUser": _of(["SDN"], "user", "audit"),
    "PVEPoolAdmin": _of(["Pool"], "admin", "user", "audit"),
    "PVEPoolUser": _of(["Pool"], "user", "audit"),
    "PVESysAdmin": _of(["Sys"], "admin", "user", "audit"),
    "PVEUserAdmin": _of(["User"], "admin", "user", "audit"),
    "PVEMappingAdmin": _of(["Mapping"], "admin", "user", "audit"),
    "PVEMappingAuditor": _of(["Mapping"], "audit"),
    "PVEMappingUser": _of(["Mapping"], "user", "audit"),
}
