"""Replay of recorded requests, and comparison of the answers with the recorded ones."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import requests

from tests.contract.endpoint import Endpoint

EXACT = (
    "/config",
    "/pending",
    "/status/current",
    "/nodes/pve/qemu",
    "/nodes/pve/lxc",
    "/interfaces",
    "/pools",
)
PASSWORD = "powerless-secret"
KINDS = {"<str>": str, "<bool>": bool, "<null>": type(None), "<number>": (int, float)}
TEXTS = {"<upid>": r"UPID:\S+:", "<mac>": r"BC:24:11:(?:[0-9A-F]{2}:){2}[0-9A-F]{2}", "<root>": r"/\S+"}
TOLD = ("TASK", "WARN: ", "forced ", "purging ")


class Recorder:
    """The callers of the recording, and values that requests take from earlier answers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.root = endpoint.root()
        self.root.access.users("root@pam").token("full").post(privsep=0)
        self.upid = ""
        self.archives: dict[bool, bytes] = {}
        self.digest = ""
        self.full = self._token("root@pam", "full")
        self.root.access.users.post(userid="powerless@pve", password=PASSWORD)
        self.powerless = self._token("powerless@pve", "none")
        self.root.access.users.post(userid="granted@pve", password=PASSWORD)
        self.granted = self._token("granted@pve", "tok")
        login = {"username": "powerless@pve", "password": PASSWORD}
        self.ticket = endpoint.request("POST", "/access/ticket", {}, data=login).json()["data"]

    def _token(self, user: str, name: str) -> dict[str, str]:
        tokens = self.root.access.users(user).token(name)
        if any(row["tokenid"] == name for row in self.root.access.users(user).token.get()):
            tokens.delete()
        secret = tokens.post(privsep=0)["value"]
        return {"Authorization": f"PVEAPIToken={user}!{name}={secret}"}

    def headers(self, who: str) -> dict[str, str]:
        token, good = self.full["Authorization"], {"Cookie": f"PVEAuthCookie={self.ticket['ticket']}"}
        known: dict[str, dict[str, str]] = {
            "nobody": {},
            "root-token": self.full,
            "powerless-token": self.powerless,
            "granted-token": self.granted,
            "wrong-token-name": {"Authorization": token.replace("!full", "!nosuch")},
            "wrong-token-secret": {"Authorization": token[:-4] + "0000"},
            "garbage": {"Authorization": "PVEAPIToken=garbage"},
            "bad-ticket": {"Cookie": "PVEAuthCookie=PVE:root@pam:5F5E1000::AAAA"},
            "ticket": good | {"CSRFPreventionToken": self.ticket["CSRFPreventionToken"]},
            "ticket-without-csrf": good,
            "ticket-with-bad-csrf": good | {"CSRFPreventionToken": "5F5E1000:AAAA"},
        }
        return known[who]

    def allow(self, rights: dict[str, list[str]]) -> None:
        """Give ``granted@pve`` exactly these privileges, by path."""
        for entry in self.root.access.acl.get():
            if entry["ugid"] == "granted@pve":
                self.root.access.roles(entry["roleid"]).delete()
        for number, (path, privileges) in enumerate(rights.items()):
            self.root.access.roles.post(roleid=f"Granted{number}", privs=",".join(privileges))
            self.root.access.acl.put(path=path, users="granted@pve", roles=f"Granted{number}")

    def _fill(self, value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"repeat", "times"}:
            return value["repeat"] * value["times"]
        places = {"<powerless-password>": PASSWORD, "<ticket>": self.ticket["ticket"]}
        return places.get(value, value) if isinstance(value, str) else value

    def play(self, pair: dict[str, Any]) -> requests.Response:
        path = pair["path"].replace("<upid>", self.upid)
        if self.upid and "<upid>" in pair["path"]:
            self.endpoint.wait(self.upid, self.root)
        if "upload" in pair:
            return self._upload(pair)
        given = {
            key: {name: self._fill(value) for name, value in pair[key].items()}
            for key in ("data", "params", "json")
            if key in pair
        }
        return self._wait_for_task(
            self.endpoint.request(pair["method"], path, self.headers(pair["who"]), **given)
        )

    def _upload(self, pair: dict[str, Any]) -> requests.Response:
        """Upload an archive from ``archives``, with the form fields in the recorded order."""
        parts = []
        for name, value in pair["upload"]:
            if name == "filename":
                archive = self.archives[value.startswith("debian")]
                parts.append((name, (value, archive, "application/octet-stream")))
            else:
                parts.append((name, (None, value)))
        digest = self.digest = hashlib.sha256(archive).hexdigest()
        sent = [(n, (f[0], digest if f[1] == "<sha256>" else f[1], *f[2:])) for n, f in parts]
        return self._wait_for_task(
            self.endpoint.request(pair["method"], pair["path"], self.headers(pair["who"]), files=sent)
        )

    def _wait_for_task(self, answer: requests.Response) -> requests.Response:
        """Wait for the task of an answer, and remember its UPID for later requests."""
        if answer.status_code == 200 and str(answer.json()["data"]).startswith("UPID:"):
            self.upid = answer.json()["data"]
            self.endpoint.wait(self.upid, self.root)
        return answer


def check(pair: dict[str, Any], answer: requests.Response) -> None:
    """Fail unless an answer matches the recorded one."""
    assert (answer.status_code, answer.reason) == (pair["status"], pair["reason"])
    if isinstance(pair["body"], str):
        assert answer.text == pair["body"]
        assert "Content-Type" not in answer.headers or pair["body"] or not answer.text
        return
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    body, want = answer.json(), pair["body"]
    if pair["path"].endswith("/log"):
        rows = [row["t"] for row in body["data"]]
        kept = [{"t": t} for t in rows if t.startswith(TOLD) or "successfully" in t or "verified" in t]
        body = {"data": kept}
    if answer.status_code == 200:
        want = {"data": None} | want
    assert body.get("errors") == want.get("errors")
    if "data" in want:
        exact = pair["path"].endswith(EXACT)
        assert differences(want["data"], body["data"], exact) == []


def differences(want: Any, got: Any, exact: bool, place: str = "") -> list[str]:
    """Return the differences between an answer and the recorded facts."""
    if isinstance(want, str) and want in KINDS:
        fits = isinstance(got, KINDS[want])
    elif isinstance(want, str) and any(name in want for name in TEXTS):
        pattern = re.escape(want)
        for name, text in TEXTS.items():
            pattern = pattern.replace(re.escape(name), text)
        fits = isinstance(got, str) and re.fullmatch(pattern, got) is not None
    elif isinstance(want, dict) and isinstance(got, dict):
        return _dict_differences(want, got, exact, place)
    elif isinstance(want, list) and isinstance(got, list):
        return _list_differences(want, got, exact, place)
    else:
        fits = want == got and type(want) is type(got)
    return [] if fits else [f"{place}: recorded {want!r}, got {got!r}"]


def _dict_differences(want: dict[str, Any], got: dict[str, Any], exact: bool, place: str) -> list[str]:
    found = [f"{place}.{key}: missing" for key in want if key not in got]
    found += [f"{place}.{key}: not recorded" for key in got if exact and key not in want]
    for key in want.keys() & got.keys():
        found += differences(want[key], got[key], exact, f"{place}.{key}")
    return found


def _list_differences(want: list[Any], got: list[Any], exact: bool, place: str) -> list[str]:
    def name(row: Any) -> str:
        return str(row.get("key", "")) if isinstance(row, dict) else str(row)

    if len(want) != len(got):
        return [f"{place}: {len(want)} rows recorded, got {len(got)}: {got}"]
    pairs = zip(sorted(want, key=name), sorted(got, key=name), strict=True)
    return [line for i, (a, b) in enumerate(pairs) for line in differences(a, b, exact, f"{place}[{i}]")]
