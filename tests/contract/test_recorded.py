"""Replay of request and response pairs recorded from a real Proxmox VE 9.2, in their order, over HTTPS.

``tests/data/pve/recorded.json`` holds their facts: request, status, reason phrase, error texts, and the
answer's keys and values (``<number>``, ``<str>``, ``<mac>`` ... where the value is the recorder's own). A
pair that is not replayed says why.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.contract.endpoint import Endpoint

PAIRS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data/pve/recorded.json").read_text())
REPLAYED = [pair for pair in PAIRS if "not_covered" not in pair]
SHARED = Path(__file__).parents[3] / "shared/pve"
RECORDINGS = [*(SHARED / "golden").glob("*.json"), SHARED / "golden_containers/pools_storage.json"]
EXACT = ("/config", "/pending", "/status/current", "/nodes/pve/qemu", "/pools")
PASSWORD = "powerless-secret"
KINDS = {"<str>": str, "<bool>": bool, "<null>": type(None), "<number>": (int, float)}
TEXTS = {"<upid>": r"UPID:\S+:", "<mac>": r"BC:24:11:(?:[0-9A-F]{2}:){2}[0-9A-F]{2}", "<root>": r"/\S+"}


class Recorder:
    """The callers of the recording, and what one answer hands to the next request."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.root = endpoint.root()
        self.root.access.users("root@pam").token("full").post(privsep=0)
        self.upid = ""
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
        """Let ``granted@pve`` have exactly these privileges, by path."""
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
        given = {
            key: {name: self._fill(value) for name, value in pair[key].items()}
            for key in ("data", "params", "json")
            if key in pair
        }
        answer = self.endpoint.request(pair["method"], path, self.headers(pair["who"]), **given)
        if answer.status_code == 200 and str(answer.json()["data"]).startswith("UPID:"):
            self.upid = answer.json()["data"]
            self.endpoint.wait(self.upid, self.root)
        return answer


@pytest.fixture(scope="module")
def recorder(real: bool, endpoint: Endpoint) -> Iterator[Recorder]:
    if real:
        pytest.skip("the replay makes users and VM 100 as root; the environment names a real Proxmox VE")
    made = Recorder(endpoint)
    yield made
    made.root.nodes(endpoint.node).qemu(100).config.put(skiplock=1, delete="lock")
    endpoint.done(made.root.nodes(endpoint.node).qemu(100).status.stop.post(), made.root)
    endpoint.done(made.root.nodes(endpoint.node).qemu(100).delete(), made.root)


def differences(want: Any, got: Any, exact: bool, place: str = "") -> list[str]:
    """Where an answer differs from the recorded facts."""
    if isinstance(want, str) and want in KINDS:
        fits = isinstance(got, KINDS[want])  # type: ignore[arg-type]
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


def prepare(pair: dict[str, Any], recorder: Recorder) -> None:
    """What the recorder's node had at this point and the recorded requests do not make."""
    state, root = recorder.endpoint.state, recorder.root
    assert state is not None
    if pair["id"] == "vm_lifecycle/2":
        file = state / "etc/network/interfaces"
        lab = "auto vmbr1\niface vmbr1 inet manual\n\tbridge-ports none\n\tbridge-stp off\n\tbridge-fd 0\n"
        file.write_text(f"{file.read_text()}\n{lab}\tbridge-ageing 0\n#lab bridge\n")
        recorder.endpoint.done(root.nodes("pve").network.put(), root)
    if pair["id"] == "start_and_tasks/2":
        image = state / "storage/import/base.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "64M"], check=True)
    if pair["id"] == "pools_storage/1":
        root.pools.post(poolid="lab")
    if pair["id"] == "pools_storage/25":
        (state / "storage/import/base.qcow2").unlink()
        (state / "storage/import/a.qcow2").write_bytes(b"an image")
    if pair["id"] == "pools_storage/33":
        (state / "storage/import/b.qcow2").write_bytes(b"an image")
    if "rights" in pair:
        recorder.allow(pair["rights"])
    if pair["id"] == "live_changes/33":
        root.nodes("pve").qemu(100).config.put(lock="backup")


@pytest.mark.parametrize("pair", REPLAYED, ids=[pair["id"] for pair in REPLAYED])
def test_pair(recorder: Recorder, pair: dict[str, Any]) -> None:
    prepare(pair, recorder)
    answer = recorder.play(pair)
    assert (answer.status_code, answer.reason) == (pair["status"], pair["reason"])
    if isinstance(pair["body"], str):
        assert answer.text == pair["body"]
        assert "Content-Type" not in answer.headers or pair["body"] or not answer.text
        return
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    body, want = answer.json(), pair["body"]
    if pair["path"].endswith("/log"):
        rows = [row["t"] for row in body["data"]]
        kept = [{"t": t} for t in rows if t.startswith("TASK") or "successfully" in t]
        body = {"data": kept}
    if answer.status_code == 200:
        want = {"data": None} | want
    assert body.get("errors") == want.get("errors")
    if "data" in want:
        exact = pair["path"].endswith(EXACT)
        assert differences(want["data"], body["data"], exact) == []


def test_every_recorded_pair_is_accounted_for() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"the recordings are not at {SHARED}")
    recorded = {
        f"{file.stem}/{number}" for file in RECORDINGS for number in range(len(json.loads(file.read_text())))
    }
    assert {pair["id"] for pair in PAIRS} == recorded
    assert all(len(pair["not_covered"]) > 20 for pair in PAIRS if "not_covered" in pair)
