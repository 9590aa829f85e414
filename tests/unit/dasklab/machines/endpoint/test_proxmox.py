"""The client against a server that fails as networks do: repeated calls and error messages."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import requests
from dasklab.errors import LabError
from dasklab.machines.endpoint import api_errors, proxmox
from dasklab.machines.endpoint.change import Change, ExpectedRow, Step
from dasklab.machines.endpoint.observe import check_nodes
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.endpoint import Endpoint

from tests.unit.dasklab.machines.fake_pve import HANG_UP, FakePve, InTurn, Status, serving

VERSION = {"version": "9.2.11"}
SECRET = "3f1c7a80-secret"


def error_of(answers: dict[str, Any], folder: Path, path: str = "version", **changes: Any) -> LabError:
    """Return the error that a read ends with."""
    with serving(answers, folder) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint(**changes)).api(path).get()
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("fault", [HANG_UP, *(Status(code, "Broken pipe") for code in (502, 596, 597, 599))])
def test_lost_read_is_repeated(fault: Any, tmp_path: Path) -> None:
    with serving({"version": InTurn([fault, fault, VERSION])}, tmp_path) as fake:
        assert Pve(fake.endpoint()).version() == (9, 2)
    assert fake.requests == ["GET version"] * 3


def test_reads_are_repeated_three_times(tmp_path: Path) -> None:
    with (
        serving({"version": Status(596, "Broken pipe")}, tmp_path) as fake,
        pytest.raises(LabError) as caught,
    ):
        Pve(fake.endpoint()).api.version.get()
    assert len(fake.requests) == 4
    assert f"https://127.0.0.1:{fake.port}: GET /version: 596 Broken pipe" in caught.value.message
    assert "systemctl status pveproxy pvedaemon" in (caught.value.hint or "")


@pytest.mark.parametrize("fault", [HANG_UP, Status(596, "Broken pipe")])
def test_change_is_sent_once_and_its_fate_is_left_open(fault: Any, tmp_path: Path) -> None:
    with serving({"nodes/pve/qemu": fault}, tmp_path) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).call(Change("POST", "/nodes/pve/qemu", "a machine"))
    assert fake.requests == ["POST nodes/pve/qemu"]
    assert "run the same command again" in (caught.value.hint or "")


def test_api_error_is_not_repeated(tmp_path: Path) -> None:
    refused = pytest.raises(LabError, match="GET /version: 500 no such thing")
    with serving({"version": Status(500, "no such thing")}, tmp_path) as fake, refused:
        Pve(fake.endpoint()).api.version.get()
    assert len(fake.requests) == 1


def test_parameter_errors_are_named(tmp_path: Path) -> None:
    error = error_of(
        {"x": Status(400, "Parameter verification failed.", {"vmid": "too small"})}, tmp_path, "x"
    )
    assert "400 Parameter verification failed. (vmid: too small)" in error.message


def test_the_whole_text_of_an_error_is_reported(tmp_path: Path) -> None:
    """The status line has only the first line, in Latin-1."""
    error = error_of(
        {"version": Status(500, "start failed", message="start failed:\nno memory → stopped\n")}, tmp_path
    )
    assert "GET /version: 500 start failed:; no memory → stopped" in error.message


def test_error_page_of_a_gateway_is_not_quoted(tmp_path: Path) -> None:
    error = error_of({"version": Status(400, "Bad Request", page=b"<html>nginx</html>")}, tmp_path)
    assert error.message.endswith("GET /version: 400 Bad Request")


@pytest.mark.parametrize("page", [b"[1, 2]", b"null"])
def test_error_that_is_no_object_is_no_answer(page: bytes, tmp_path: Path) -> None:
    error = error_of({"version": Status(400, "Bad Request", page=page)}, tmp_path)
    assert "GET /version: this is not an answer of a Proxmox VE API" in error.message


def test_document_has_the_fields_beside_the_data(tmp_path: Path) -> None:
    page = b'{"data": [], "changes": "--- a"}'
    with serving({"nodes/pve/network": page}, tmp_path) as fake:
        document = Pve(fake.endpoint()).api.nodes("pve").network.document()
    assert document == {"data": [], "changes": "--- a"}


def test_document_of_a_refused_call_raises(tmp_path: Path) -> None:
    refused = pytest.raises(LabError, match="GET /nodes/pve/network: Permission check failed")
    with serving({"nodes/pve/network": Status(403, "Permission check failed")}, tmp_path) as fake, refused:
        Pve(fake.endpoint()).api.nodes("pve").network.document()


def test_each_thread_has_a_session_of_its_own(tmp_path: Path) -> None:
    with serving({"version": VERSION}, tmp_path) as fake:
        pve = Pve(fake.endpoint())
        meeting = Barrier(2)

        def session(_: int) -> object:
            meeting.wait(10)  # so that one thread cannot serve both
            return pve.api._resource._store["session"]

        first, second = pve.map(session, range(2))
    assert first is not second


@pytest.mark.parametrize(
    "message",
    ["VM is locked (backup)", "CT is locked (snapshot)", "can't lock file '/var/lock/x' - got timeout"],
)
def test_lock_is_waited_for(message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxmox.time, "sleep", lambda _: None)
    path = "nodes/pve/lxc/9101/status/start"
    with serving({path: InTurn([Status(500, message), None])}, tmp_path) as fake:
        Pve(fake.endpoint()).call(Change("POST", f"/{path}", "start"))
    assert fake.requests == [f"POST {path}"] * 2


def test_interrupted_upload_is_not_reported_as_a_certificate_problem(tmp_path: Path) -> None:
    image = tmp_path / "image.qcow2"
    image.write_bytes(bytes(30 * 2**20))
    params = {"content": "import", "filename": "lab.image.qcow2"}
    upload = Change("UPLOAD", "/upload", "the image", params, str(image))
    with serving({"upload": HANG_UP}, tmp_path) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).call(upload)
    assert "POST /upload: the connection was cut" in caught.value.message
    assert "certificate" not in str(caught.value)
    assert "run the same command again" in (caught.value.hint or "")


def test_upload_uses_the_requested_name(tmp_path: Path) -> None:
    image = tmp_path / "image.qcow2"
    image.write_bytes(b"x")
    with proxmox._RenamedFile(str(image), "lab.image.qcow2") as file:
        assert (file.name, file.read()) == ("lab.image.qcow2", b"x")


def test_plain_http_is_reported(tmp_path: Path) -> None:
    with serving({"version": VERSION}, tmp_path, plain=True) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).api.version.get()
    assert "does not speak TLS" in caught.value.message
    assert "8006" in (caught.value.hint or "")


def test_unknown_issuer_of_a_certificate_is_reported(tmp_path: Path) -> None:
    error = error_of({"version": VERSION}, tmp_path, ca_file=None)
    assert "its certificate cannot be verified (unable to get local issuer certificate)" in error.message
    assert "pve-root-ca.pem" in (error.hint or "")


def test_address_missing_in_the_certificate_is_reported(tmp_path: Path) -> None:
    elsewhere = serving({"version": VERSION}, tmp_path, host="127.0.0.2")
    with elsewhere as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).api.version.get()
    assert "its certificate cannot be verified (IP address mismatch" in caught.value.message
    assert "PROXMOX_HOST" in (caught.value.hint or "")


@pytest.mark.parametrize("page", [b"<html><title>Login</title></html>", b"[1, 2]", b'{"ok": 1}'])
def test_answer_that_is_not_the_apis_is_reported(page: bytes, tmp_path: Path) -> None:
    error = error_of({"version": page}, tmp_path)
    assert "GET /version: this is not an answer of a Proxmox VE API" in error.message
    assert "8006" in (error.hint or "")


def test_missing_version_is_reported(tmp_path: Path) -> None:
    with serving({"version": None}, tmp_path) as fake, pytest.raises(LabError, match="this is no version"):
        Pve(fake.endpoint()).version()


def test_closed_port_is_reported(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fake = FakePve({}, port=port)
    with pytest.raises(LabError, match="nothing listens there") as caught:
        Pve(fake.endpoint(ca_file=None)).api.version.get()
    assert "doctor" not in str(caught.value)


def test_address_that_swallows_packets_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxmox, "CONNECT_S", 0.2)
    with socket.socket() as full:  # a full queue does not answer
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()), pytest.raises(LabError) as caught:
            for _ in range(8):
                fake = FakePve({}, port=full.getsockname()[1])
                Pve(fake.endpoint(ca_file=None, timeout_s=0.3)).api.version.get()
    assert "Max retries" not in caught.value.message
    assert "time" in caught.value.message


def test_unknown_host_name_is_reported() -> None:
    with pytest.raises(LabError, match="it cannot be reached") as caught:
        Pve(FakePve({}, port=1).endpoint(ca_file=None, host="no-such-host.invalid")).api.version.get()
    assert "firewall" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("https://192.168.1.10:8006", "192.168.1.10"),
        ("https://pve.example/", "pve.example"),
        ("192.168.1.10:8006", "192.168.1.10"),
        ("192.168.1.10/", "192.168.1.10"),
        ("[fd00::10]:8006", "fd00::10"),
        ("https://[bad", ""),
    ],
)
def test_host_that_is_no_host_is_refused_in_one_line(host: str, alone: str) -> None:
    with pytest.raises(LabError) as caught:
        FakePve({}, port=1).endpoint(host=host)
    expected = f"proxmox: host: {host!r} must be a name or an address alone" + (
        f": {alone} " if alone else " "
    )
    assert expected in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("host", ["pve", "PVE.example", "192.168.1.10", "fd00::10"])
def test_hosts_are_accepted_as_they_are(host: str) -> None:
    endpoint = FakePve({}, port=8006).endpoint(host=host)
    assert endpoint.host == host
    assert endpoint.url == ("https://[fd00::10]:8006" if ":" in host else f"https://{host}:8006")


def test_full_token_id_is_refused_with_the_part_that_is_meant() -> None:
    with pytest.raises(LabError, match=r"token_id: .* only the part after the '!': dasklab"):
        FakePve({}, port=1).endpoint(token_id="lab@pve!dasklab")


def test_expired_certificate_is_reported_with_the_command_that_renews_it() -> None:
    inner = ssl.SSLCertVerificationError(1, "certificate verify failed: certificate has expired")
    inner.verify_message = "certificate has expired"
    error = requests.exceptions.SSLError(f"CERTIFICATE_VERIFY_FAILED {inner}")
    error.__cause__ = inner
    caught = api_errors.no_answer(error, "GET /version", "https://pve:8006")
    assert "(certificate has expired)" in caught.message
    assert "pvecm updatecerts" in (caught.hint or "")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cluster not ready - no quorum?", "pvecm status"),
        ("can't remove VM 9102 - protection mode enabled", "qm set 9102 --protection 0"),
        ("can't remove CT 9102 - protection mode enabled", "pct set 9102 --protection 0"),
    ],
)
def test_refusal_names_the_next_step(text: str, hint: str, tmp_path: Path) -> None:
    assert hint in (error_of({"version": Status(500, text)}, tmp_path).hint or "")


def test_node_in_the_wrong_case_is_named(tmp_path: Path) -> None:
    refused = pytest.raises(LabError, match=r"has no node 'PVE'; there are pve")
    with serving({"nodes": [{"node": "pve", "status": "online"}]}, tmp_path) as fake, refused:
        check_nodes(Pve(fake.endpoint()), ["PVE"])


@pytest.mark.parametrize("secret", [f"{SECRET}\n", f"{SECRET} ", f"{SECRET}ä"])
def test_secret_with_invalid_characters_is_refused_without_printing_it(secret: str) -> None:
    with pytest.raises(LabError) as caught:
        FakePve({}, port=1).endpoint(token_secret=secret)
    assert caught.value.message.startswith("inventory: proxmox: token_secret: has a line break")
    assert SECRET not in str(caught.value)
    assert "\n" not in caught.value.message


def test_missing_endpoint_settings_are_listed_with_their_sources() -> None:
    with pytest.raises(LabError) as caught:
        Endpoint.from_inventory({"host": "", "user": None, "port": 8006})
    for name in ("PROXMOX_HOST", "PROXMOX_USER", "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "lab@pve"):
        assert name in caught.value.message
    assert "more)" not in caught.value.message
    assert "\n" not in caught.value.message


def test_common_cause_of_several_machines_is_printed_once(tmp_path: Path) -> None:
    cause = Status(500, "bridge 'vmbr77' does not exist")
    paths = [f"nodes/pve/qemu/{vmid}/status/start" for vmid in range(9101, 9106)]
    chains = tuple((Change("POST", f"/{path}", "start"),) for path in paths)
    answers = {**dict.fromkeys(paths, cause), paths[4]: Status(500, "no memory")}
    with serving(answers, tmp_path) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).apply([Step("machines", chains)])
    assert caught.value.message.count("vmbr77") == 1
    assert "(and 3 more for the same cause)" in caught.value.message
    assert "no memory" in caught.value.message


@pytest.mark.parametrize(
    "cause",
    [
        "cannot open '/etc/pve/nodes/pve/qemu-server/{}.conf' - no quorum",
        "unable to create VM {} - volume 'local:{}/vm-{}-disk-0.qcow2' does not exist",
        "clone failed: /mnt/x{}/images: no space left, tap{}i0 stays",
        "the task UPID:pve:0000{}:0009:6B0:qmstart:{}:lab@pve!t: is gone",
    ],
)
def test_common_cause_with_vmid_or_path_is_printed_once(cause: str, tmp_path: Path) -> None:
    vmids = range(9101, 9104)
    paths = {vmid: f"nodes/pve/qemu/{vmid}/status/start" for vmid in vmids}
    chains = tuple((Change("POST", f"/{path}", "start"),) for path in paths.values())
    answers = {path: Status(500, cause.replace("{}", str(vmid))) for vmid, path in paths.items()}
    with serving(answers, tmp_path) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).apply([Step("machines", chains)])
    assert caught.value.message.count("500 ") == 1
    assert "(and 2 more for the same cause)" in caught.value.message


@pytest.mark.parametrize(
    "cause",
    [
        "{name}: lxc-start {vmid} 20261127114000.{vmid} ERROR start - exited with status 2",
        "address 10.77.1.{number} with BC:24:11:00:00:0{number} is in use",
        "the client hung up on scheduler {vmid}",
    ],
)
def test_common_cause_with_names_times_or_addresses_is_printed_once(cause: str, tmp_path: Path) -> None:
    names = {9101: "client", 9102: "scheduler", 9103: "worker-1"}
    changes, answers = [], {}
    for number, (vmid, name) in enumerate(names.items(), start=1):
        net = f"name=eth1,hwaddr=BC:24:11:00:00:0{number},ip=10.77.1.{number}/24"
        path = f"nodes/pve{number}/lxc"
        changes.append(Change("POST", f"/{path}", "make", {"vmid": vmid, "hostname": name, "net1": net}))
        answers[path] = Status(500, cause.format(name=name, vmid=vmid, number=number))
    with serving(answers, tmp_path) as fake, pytest.raises(LabError) as caught:
        Pve(fake.endpoint()).apply([Step("machines", tuple((change,) for change in changes))])
    assert "(and 2 more for the same cause)" in caught.value.message


def test_different_causes_are_printed_separately(tmp_path: Path) -> None:
    """Numbers other than a machine's own VMID distinguish causes."""
    paths = [f"nodes/pve/qemu/{vmid}/status/start" for vmid in (9101, 9102)]
    chains = tuple((Change("POST", f"/{path}", "start"),) for path in paths)
    answers = {
        path: Status(500, f"{lacking} MiB are lacking")
        for path, lacking in zip(paths, (64, 512), strict=True)
    }
    with serving(answers, tmp_path) as fake, pytest.raises(LabError, match=r"64 MiB.*512 MiB"):
        Pve(fake.endpoint()).apply([Step("machines", chains)])


def test_common_warning_of_several_machines_is_printed_once(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    chains = []
    for vmid in (9101, 9102):
        upid = f"UPID:pve:0000{vmid}:00000000:00000000:qmstart:{vmid}:lab@pve!t:"
        task = f"nodes/pve/tasks/{upid}"
        answers[f"nodes/pve/qemu/{vmid}/status/start"] = upid
        answers[f"{task}/status"] = {"status": "stopped", "exitstatus": "WARNINGS: 1"}
        answers[f"{task}/log?limit=0"] = [{"n": 1, "t": f"WARN: tap{vmid}i0 has no vhost"}]
        chains.append((Change("POST", f"/nodes/pve/qemu/{vmid}/status/start", "start"),))
    with serving(answers, tmp_path) as fake:
        pve = Pve(fake.endpoint())
        pve.apply([Step("machines", tuple(chains))])
    [warning] = pve.warnings
    assert "has no vhost" in warning and warning.endswith("(and 1 more for the same cause)")


FAULTS = {
    "no connection": requests.exceptions.ConnectTimeout("connect"),
    "no route": requests.exceptions.ConnectionError("NewConnectionError: no route to host"),
    "no name": requests.exceptions.ConnectionError("NameResolutionError: try again"),
    "no answer": requests.exceptions.ReadTimeout("read"),
    "cut": requests.exceptions.ChunkedEncodingError("IncompleteRead"),
}
UNSENT = ("no connection", "no route", "no name")


class Unsteady:
    """A client whose connection fails with the next of ``faults`` before each request."""

    def __init__(self, fake: FakePve, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: list[Exception] = []
        self.sent: list[str] = []
        self.pve = Pve(fake.endpoint())
        session = self.pve.api._resource._store["session"]
        send = session.request

        def request(method: str, url: str, **content: Any) -> Any:
            self.sent.append(method)
            if self.faults:
                raise self.faults.pop(0)
            return send(method, url, **content)

        monkeypatch.setattr(session, "request", request)


@pytest.mark.parametrize("fault", FAULTS)
def test_read_is_repeated_if_the_endpoint_has_answered_before(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"version": VERSION}, tmp_path) as fake:
        client = Unsteady(fake, monkeypatch)
        assert client.pve.version() == (9, 2)
        client.faults = [FAULTS[fault]] * 3
        assert client.pve.version() == (9, 2)
    assert client.sent == ["GET"] * 5


@pytest.mark.parametrize("fault", UNSENT)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_connecting_is_repeated_with_patience(
    fault: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent, so that a change is repeated as safely as a read. After the patience, it ends."""
    monkeypatch.setattr(proxmox, "CONNECT_PAUSE_S", 0.0)
    monkeypatch.setattr(proxmox, "PAUSES_S", (0.0, 0.0))
    start = "nodes/pve/qemu/9101/status/start"
    with serving({"version": VERSION, start: None}, tmp_path) as fake:
        client = Unsteady(fake, monkeypatch)
        client.pve.version()
        client.faults = [FAULTS[fault]] * 20
        if method == "GET":
            assert client.pve.version() == (9, 2)
        else:
            client.pve.call(Change("POST", f"/{start}", "start"))
        assert client.sent == ["GET"] + [method] * 21
        monkeypatch.setattr(proxmox, "RECONNECT_S", 0.0)
        client.faults = [FAULTS[fault]] * 20
        with pytest.raises(LabError):
            client.pve.version()
        assert len(client.faults) == 17


@pytest.mark.parametrize("fault", ["no connection", "no route", "no name", "no answer"])
def test_wrong_address_is_reported_at_once(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"version": VERSION}, tmp_path) as fake:
        client = Unsteady(fake, monkeypatch)
        client.faults = [FAULTS[fault]] * 4
        with pytest.raises(LabError):
            client.pve.version()
    assert client.sent == ["GET"]


@pytest.mark.parametrize("fault", FAULTS)
def test_change_is_repeated_only_if_it_was_never_sent(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = "nodes/pve/qemu/9101/status/start"
    with serving({"version": VERSION, start: None}, tmp_path) as fake:
        client = Unsteady(fake, monkeypatch)
        client.pve.version()
        client.faults = [FAULTS[fault]]
        if fault in UNSENT:
            client.pve.call(Change("POST", f"/{start}", "start"))
        else:
            with pytest.raises(LabError) as caught:
                client.pve.call(Change("POST", f"/{start}", "start"))
            assert "run the same command again" in (caught.value.hint or "")
    assert client.sent == ["GET"] + ["POST"] * (2 if fault in UNSENT else 1)


ZONES = "nodes/pve2/sdn/zones"
UP = ExpectedRow(ZONES, {"zone": "lab", "status": "available"})
APPLY = Change("PUT", "/cluster/sdn", "bring it up", until=(UP,))


def test_apply_waits_for_the_node(tmp_path: Path) -> None:
    rows = InTurn([[], [{"zone": "lab", "status": "error"}], [{"zone": "lab", "status": "available"}]])
    with serving({"cluster/sdn": None, ZONES: rows}, tmp_path) as fake:
        Pve(fake.endpoint()).call(APPLY)
    assert fake.requests.count(f"GET {ZONES}") == 3


def test_apply_without_effect_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxmox, "EFFECT_WAIT_S", 0.2)
    with serving({"cluster/sdn": None, ZONES: []}, tmp_path) as fake, pytest.raises(LabError) as late:
        Pve(fake.endpoint()).call(APPLY)
    assert late.value.message == f"bring it up: {ZONES} has no zone lab status available after 0 s"
