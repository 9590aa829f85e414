"""Effective privileges, permission rules, tickets."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, strategies
from minipve.access import tickets
from minipve.access.accounts import Access, acl_path, grant, normalise_path, revoke
from minipve.access.permissions import Permit
from minipve.access.tickets import Tickets, hash_secret, same_secret, token_digest
from minipve.api.access import update_acl
from minipve.base.errors import ApiError, UnauthorizedError
from minipve.config.rules.privileges import BUILTIN_ROLES, PRIVILEGES
from minipve.node.call import Call


@pytest.fixture
def access(tmp_path: Path) -> Access:
    made = Access(tmp_path / "access.json")
    with made.change() as data:
        token = {"privsep": 1, "secret": token_digest("s3cret")}
        data["users"]["a@pve"] = {"enable": 1, "password": hash_secret("word"), "tokens": {"tt": token}}
        data["users"]["root@pam"]["tokens"]["full"] = {"privsep": 0, "secret": token_digest("r00t")}
        data["pools"]["p"] = {"vms": [100], "storage": ["local"]}
        data["roles"]["R"] = ["VM.Audit", "VM.PowerMgmt"]
    return made


def _grant(access: Access, *entries: tuple[str, str, str, int]) -> None:
    with access.change() as data:
        for path, role, who, propagate in entries:
            grant(data, path, role, who, propagate)


@pytest.mark.parametrize(
    ("entries", "path", "privileges"),
    [
        ([], "/vms/100", set()),
        ([("/", "R", "a@pve", 1)], "/vms/100", {"VM.Audit", "VM.PowerMgmt"}),
        ([("/", "R", "a@pve", 0)], "/vms/100", set()),
        ([("/", "R", "a@pve", 0)], "/", {"VM.Audit", "VM.PowerMgmt"}),
        ([("/pool/p", "R", "a@pve", 1)], "/vms/100", {"VM.Audit", "VM.PowerMgmt"}),
        ([("/pool/p", "R", "a@pve", 1)], "/vms/101", set()),
        (
            [("/pool/p", "PVEDatastoreUser", "a@pve", 1)],
            "/storage/local",
            {"Datastore.AllocateSpace", "Datastore.Audit"},
        ),
        ([("/", "R", "a@pve", 1), ("/vms", "NoAccess", "a@pve", 1)], "/vms/100", set()),
        (
            [("/", "R", "a@pve", 1), ("/vms/7", "PVETemplateUser", "a@pve", 1)],
            "/vms/7",
            {"VM.Audit", "VM.Clone"},
        ),
        ([("/vms/1000", "R", "a@pve", 1)], "/vms/100", set()),
    ],
)
def test_effective_privileges(
    access: Access, entries: list[tuple[str, str, str, int]], path: str, privileges: set[str]
) -> None:
    _grant(access, *entries)
    assert set(access.privileges("a@pve", path)) == privileges


def test_tokens(access: Access) -> None:
    _grant(access, ("/", "R", "a@pve", 1))
    assert access.privileges("a@pve!tt", "/") == {}
    _grant(access, ("/", "PVETemplateUser", "a@pve!tt", 1))
    assert set(access.privileges("a@pve!tt", "/")) == {"VM.Audit"}
    assert set(access.privileges("root@pam!full", "/vms/1")) == PRIVILEGES
    with access.change() as data:
        revoke(data, None, None, "a@pve!tt")
    assert access.privileges("a@pve!tt", "/") == {}


@pytest.mark.parametrize("of_user", [0, 1])
@pytest.mark.parametrize("of_token", [0, 1])
def test_flags_of_a_token_and_its_user_are_combined(access: Access, of_user: int, of_token: int) -> None:
    _grant(access, ("/vms", "R", "a@pve", of_user), ("/vms", "R", "a@pve!tt", of_token))
    assert set(access.privileges("a@pve!tt", "/vms").values()) == {of_user * of_token}


GRANTED = [
    *(("/vms", "VM"), ("/vms/100", "VM"), ("/vms/100", "NoAccess"), ("/pool", "Pool")),
    *(("/pool/p", "Pool"), ("/pool/p", "PVEVMUser"), ("/pool/p/q", "Pool"), ("/storage/local", "Store")),
]
HOLDERS = {"a@pve": "users", "a@pve!tt": "tokens", "g": "groups"}
ENTRIES = strategies.lists(
    strategies.tuples(*map(strategies.sampled_from, (GRANTED, [*HOLDERS], (0, 1)))), min_size=4, max_size=6
)


@patch("minipve.access.accounts.write_atomic")
@given(entries=ENTRIES, grants=ENTRIES, authid=strategies.sampled_from(["a@pve", "a@pve!tt"]))
def test_nobody_gains_rights_by_granting(
    written: Any, entries: list[Any], grants: list[Any], authid: str
) -> None:
    """Whatever a caller without Permissions.Modify grants, their own privileges do not grow."""
    access = Access(Path("/nonexistent"))
    with access.change() as draft:
        draft["users"]["a@pve"] = {"enable": 1, "tokens": {"tt": {"privsep": 1, "secret": ""}}}
        draft["groups"]["g"] = {"users": ["a@pve"]}
        draft["pools"] = {"p": {"vms": [100], "storage": ["local"]}, "p/q": {"vms": [101], "storage": []}}
        draft["roles"] = {"VM": ["VM.Allocate", "VM.Audit"], "Pool": ["Pool.Allocate", "VM.Audit"]}
        draft["roles"] |= {"Store": ["Datastore.Allocate"]}
    _grant(access, *((*granted, holder, propagate) for granted, holder, propagate in entries))
    paths = {*(path for path, _ in GRANTED), "/vms/101", "/vms/102", "/storage"}
    node, caller = SimpleNamespace(access=access), Permit(access, authid)
    for (path, role), holder, propagate in grants:
        before = {path: access.privileges(authid, path) for path in paths}
        params = {"path": path, "roles": role, "propagate": propagate, HOLDERS[holder]: holder}
        with suppress(ApiError):
            caller.rule({"check": ["perm-modify", "{path}"]}, params)
            update_acl(Call(node, caller, params))
        for path, held in before.items():
            for privilege, spreads in access.privileges(authid, path).items():
                assert held.get(privilege, -1) >= spreads, (path, privilege, params)


def test_failed_change_is_not_saved(access: Access) -> None:
    before = access.file.read_text()
    with pytest.raises(ZeroDivisionError), access.change() as data:
        data["users"].clear()
        raise ZeroDivisionError
    assert access.file.read_text() == before
    assert access.user("a@pve")
    assert access.file.stat().st_mode & 0o777 == 0o600


def test_acl_paths_are_normalised() -> None:
    assert normalise_path("/vms//100/") == "/vms/100"
    assert acl_path("/") == "/"
    assert acl_path("/sdn/zones/localnetwork/vmbr1/5") == "/sdn/zones/localnetwork/vmbr1/5"
    assert acl_path("/nosuch") is None
    assert acl_path("vms") is None


RULES: list[tuple[list[Any], dict[str, Any], str | None]] = [
    (["perm", "/vms/{vmid}", ["VM.Audit"]], {"vmid": 100}, None),
    (["perm", "/vms/{vmid}", ["VM.Audit", "VM.Clone"]], {"vmid": 100}, "/vms/100, VM.Clone"),
    (["perm", "/vms/{vmid}", ["VM.Clone", "VM.Audit"], "any", 1], {"vmid": 100}, None),
    (
        ["perm", "/vms/{vmid}", ["VM.Clone", "VM.Migrate"], "any", 1],
        {"vmid": 7},
        "/vms/7, VM.Clone|VM.Migrate",
    ),
    (["perm", "/pool/{pool}", ["VM.Audit"], "require_param", "pool"], {}, ""),
    (["or", ["perm", "/vms/9", ["VM.Audit"]], ["perm", "/vms/100", ["VM.Audit"]]], {}, None),
    (["or", ["perm", "/vms/9", ["VM.Clone"]], ["perm", "/vms/8", ["VM.Clone"]]], {}, ""),
    (["and", ["perm", "/vms/100", ["VM.Audit"]], ["perm", "/vms/9", ["VM.Clone"]]], {}, "/vms/9, VM.Clone"),
    (["userid-param", "self"], {"userid": "a@pve"}, None),
    (["userid-param", "self"], {"userid": "b@pve"}, ""),
    (["userid-param", "Realm.AllocateUser"], {"userid": "b@pve"}, "/access/realm/pve, Realm.AllocateUser"),
    (["userid-group", ["User.Modify"]], {"userid": "root@pam"}, ""),
    (["userid-group", ["User.Modify"], "groups_param", "create"], {}, "/access/groups, User.Modify"),
    (
        ["userid-group", ["User.Modify"], "groups_param", "create"],
        {"groups": "g"},
        "/access/groups/g, User.Modify",
    ),
    (["perm-modify", "{path}"], {"path": "/vms/100"}, "/vms/100, Permissions.Modify|VM.Allocate"),
]


@pytest.mark.parametrize(("rule", "given", "refusal"), RULES)
def test_rules(access: Access, rule: list[Any], given: dict[str, Any], refusal: str | None) -> None:
    _grant(access, ("/vms/100", "R", "a@pve", 1))
    permit = Permit(access, "a@pve")
    if refusal is None:
        permit.rule({"check": rule}, given)
        return
    with pytest.raises(ApiError) as error:
        permit.rule({"check": rule}, given)
    assert error.value.status == 403
    assert error.value.reason == "Permission check failed" + (f" ({refusal})" if refusal else "")


def test_empty_rule_is_for_root_only(access: Access) -> None:
    Permit(access, "root@pam").rule(None, {})
    with pytest.raises(ApiError, match="user != root@pam"):
        Permit(access, "root@pam!full").rule(None, {})


def test_builtin_roles_contain_only_defined_privileges() -> None:
    assert all(privs <= PRIVILEGES for privs in BUILTIN_ROLES.values())
    assert len(PRIVILEGES) == 47


def test_secrets() -> None:
    assert same_secret("word", hash_secret("word"))
    assert not same_secret("Word", hash_secret("word"))
    assert hash_secret("word") != hash_secret("word")


@pytest.fixture
def issued(access: Access, tmp_path: Path) -> Tickets:
    return Tickets(access, tmp_path / "key")


def test_tickets_and_csrf(issued: Tickets) -> None:
    ticket, csrf = issued.issue("a@pve", time.time())
    assert issued.authenticate("GET", None, ticket, None) == "a@pve"
    assert issued.authenticate("POST", None, ticket, csrf) == "a@pve"
    for wrong in (None, "", "XX:YY", csrf[:-2] + "AA"):
        with pytest.raises(UnauthorizedError, match="invalid csrf token"):
            issued.authenticate("PUT", None, ticket, wrong)
    assert issued.login("a@pve", "word")
    assert issued.login("a@pve", ticket)
    assert not issued.login("root@pam", ticket)
    assert not issued.login("nobody@pve", "word")


@pytest.mark.parametrize("userid", ["a@pve", "b@pve", "nobody@pve", "root@pam", "off@pve"])
def test_every_refused_login_computes_one_hash(
    issued: Tickets, access: Access, monkeypatch: pytest.MonkeyPatch, userid: str
) -> None:
    """The hash takes nearly all the time of a login. A faster refusal would reveal which users exist."""
    with access.change() as data:
        data["users"]["off@pve"] = {"enable": 0, "tokens": {}, "password": hash_secret("word")}
    calls = []

    def counted(*arguments: Any, **options: Any) -> bytes:
        calls.append(arguments)
        return scrypt(*arguments, **options)

    scrypt = hashlib.scrypt
    monkeypatch.setattr(hashlib, "scrypt", counted)
    assert not issued.login(userid, "wrong")
    assert len(calls) == 1


@pytest.mark.parametrize("age_s", [tickets.LIFETIME_S + 1, -400])
def test_expired_and_future_tickets_are_refused(issued: Tickets, age_s: int) -> None:
    ticket, _ = issued.issue("a@pve", time.time() - age_s)
    with pytest.raises(UnauthorizedError, match="Authentication failed"):
        issued.authenticate("GET", None, ticket, None)


@pytest.mark.parametrize(
    "header", ["PVEAPIToken=a@pve!tt=s3cret", "PVEAPIToken a@pve!tt=s3cret", "PVEAPIToken=a@pve%21tt=s3cret"]
)
def test_token_headers(issued: Tickets, header: str) -> None:
    assert issued.authenticate("POST", header, None, None) == "a@pve!tt"


@pytest.mark.parametrize(
    "header",
    ["PVEAPIToken=a@pve!tt=x", "PVEAPIToken=a@pve!no=s3cret", "PVEAPIToken=", "PVEAPIToken=x@pve!tt=s3cret"],
)
def test_wrong_tokens_are_refused(issued: Tickets, header: str) -> None:
    with pytest.raises(UnauthorizedError, match="Authentication failed"):
        issued.authenticate("GET", header, None, None)


def test_expired_and_disabled_users_are_refused(issued: Tickets, access: Access) -> None:
    header = "PVEAPIToken=a@pve!tt=s3cret"
    with access.change() as data:
        data["users"]["a@pve"]["tokens"]["tt"]["expire"] = int(time.time()) - 1
    with pytest.raises(UnauthorizedError):
        issued.authenticate("GET", header, None, None)
    with access.change() as data:
        data["users"]["a@pve"]["tokens"]["tt"]["expire"] = 0
        data["users"]["a@pve"]["enable"] = 0
    with pytest.raises(UnauthorizedError):
        issued.authenticate("GET", header, None, None)
