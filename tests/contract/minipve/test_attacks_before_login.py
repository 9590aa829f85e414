"""Unauthenticated clients: limits on memory, disk, time and connections, and answers to malformed HTTP."""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.endpoint import Endpoint
from tests.waiting import PATIENCE_S

PYTHON = ("Traceback", "Errno", "got itself in trouble", "object has no", "NoneType", "codec can't", ".py")
TICKET = "/api2/json/access/ticket"


def process_of(endpoint: Endpoint) -> int:
    assert endpoint.state is not None
    return int((endpoint.state / "run/endpoint.lock").read_text().split()[0])


def memory_mib(endpoint: Endpoint) -> int:
    """Return the resident memory of the endpoint's process."""
    text = Path(f"/proc/{process_of(endpoint)}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def connect(endpoint: Endpoint, timeout_s: float = 30.0) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(endpoint.ca_file))
    plain = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
    return context.wrap_socket(plain, server_hostname=endpoint.host)


def send(endpoint: Endpoint, *parts: bytes) -> bytes:
    """Return the whole answer. The endpoint may close the connection before everything is sent."""
    with connect(endpoint) as link:
        with contextlib.suppress(OSError):
            for part in parts:
                link.sendall(part)
        return receive(link)


def receive(link: ssl.SSLSocket) -> bytes:
    data = b""
    with contextlib.suppress(OSError):
        while part := link.recv(65536):
            data += part
            head, _, rest = data.partition(b"\r\n\r\n")
            length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            if length and len(rest) >= int(length[0].split(b":")[1]):
                break
    return data


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1."), answer[:200]
    return int(answer.split()[1])


def head(verb: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{verb} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def files(endpoint: Endpoint) -> set[Path]:
    assert endpoint.state is not None
    return {file for file in (endpoint.state / "storage").rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Content-Type: multipart/form-data; boundary=b", "Content-Length: 300000000"], 501),
        (["Content-Type: multipart/form-data; boundary=b", "Content-Length: 16000"], 506),
        (["Content-Type: multipart/form-data; boundary=b", "Transfer-Encoding: chunked"], 501),
        (["Content-Type: application/x-www-form-urlencoded", "Transfer-Encoding: chunked"], 501),
        (["Content-Type: application/x-www-form-urlencoded", "Content-Length: 500000"], 501),
        (["Content-Type: application/json", "Content-Length: 16385"], 501),
    ],
)
def test_large_bodies_before_login_are_refused(ours: Endpoint, headers: list[str], expected: int) -> None:
    before, rss = files(ours), memory_mib(ours)
    part = b'--b\r\nContent-Disposition: form-data; name="filename"; filename="x.iso"\r\n\r\n' + b"x" * 2**20
    answer = send(ours, head("POST", TICKET, *headers), *[part] * 64)
    assert status(answer) in (expected, 400)  # 400: what follows the head is no request
    assert files(ours) == before
    assert memory_mib(ours) - rss < 32


def test_compressed_bodies_are_refused(ours: Endpoint) -> None:
    bomb = gzip.compress(b"username=" + b"a" * 2**23)
    kind = "Content-Type: application/x-www-form-urlencoded"
    request = head("POST", TICKET, kind, "Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
    rss = memory_mib(ours)
    assert status(send(ours, request, bomb)) == 400
    assert memory_mib(ours) - rss < 8


@pytest.mark.parametrize(
    "headers",
    [
        [f"X-{n}: y" for n in range(200)],
        ["X: " + "y" * 20_000],
        ["Cookie: PVEAuthCookie=" + "y" * 20_000],
        ["Content-Length: " + "9" * 5000],
        ["Content-Length: -1"],
        ["Content-Length: 1", "Content-Length: 2"],
        ["Transfer-Encoding: nonsense"],
    ],
)
def test_large_heads_are_refused(ours: Endpoint, headers: list[str]) -> None:
    answer = send(ours, head("POST", TICKET, *headers))
    assert status(answer) in (400, 501)
    assert not any(word in answer.decode() for word in PYTHON)


@pytest.mark.parametrize("noise", [b"\x16\x03\x01" * 50, b"\0" * 100, b"GET\r\n", b"\xff HTTP/1.1\r\n"])
def test_malformed_http_is_refused(ours: Endpoint, noise: bytes) -> None:
    answer = send(ours, noise, b"\r\n\r\n")
    assert answer == b"" or status(answer) == 400
    assert not any(word in answer.decode(errors="replace") for word in PYTHON)


def test_pipelined_requests_do_not_fill_the_memory(ours: Endpoint) -> None:
    rss = memory_mib(ours)
    request = head("GET", "/api2/json/version", *(f"X-{n}: {'y' * 1000}" for n in range(60)))
    send(ours, *[request] * 2000)  # 120 MB
    assert memory_mib(ours) - rss < 32


@pytest.fixture
def half_sent(ours: Endpoint) -> Iterator[list[ssl.SSLSocket]]:
    """Return twice the maximum number of connections, each with half a request."""
    links = []
    context = ssl.create_default_context(cafile=str(ours.ca_file))
    for number in range(512):
        plain = socket.create_connection((ours.host, ours.port), timeout=PATIENCE_S)
        plain.setblocking(False)
        link = context.wrap_socket(plain, server_hostname=ours.host, do_handshake_on_connect=False)
        links.append(link)
        if number >= 250:
            continue  # these do not even shake hands
        link.settimeout(PATIENCE_S)
        link.do_handshake()
        link.sendall(head("GET", "/api2/json/version")[:-2] + b"X: " + b"y" * 3000)
    yield links
    for link in links:
        link.close()


HELLO = b"\x16\x03\x01\x02\x00\x01"  # the first bytes of a TLS handshake
MANY = 2000


def _say_nothing(_endpoint: Endpoint, plain: socket.socket) -> socket.socket:
    return plain


def _begin_a_handshake(_endpoint: Endpoint, plain: socket.socket) -> socket.socket:
    plain.sendall(HELLO)
    return plain


def _say_nothing_after_the_handshake(endpoint: Endpoint, plain: socket.socket) -> socket.socket:
    context = ssl.create_default_context(cafile=str(endpoint.ca_file))
    return context.wrap_socket(plain, server_hostname=endpoint.host)


def _begin_a_head(endpoint: Endpoint, plain: socket.socket) -> socket.socket:
    link = _say_nothing_after_the_handshake(endpoint, plain)
    link.sendall(head("GET", "/api2/json/version")[:-2])
    return link


def _begin_a_body(endpoint: Endpoint, plain: socket.socket) -> socket.socket:
    link = _say_nothing_after_the_handshake(endpoint, plain)
    link.sendall(head("POST", TICKET, "Content-Type: application/json", "Content-Length: 100") + b"{")
    return link


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Raise the limit on open files for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY + 1000:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 1000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("keep_waiting", "many"),
    [
        (_say_nothing, MANY),
        (_begin_a_handshake, MANY),
        (_say_nothing_after_the_handshake, 600),
        (_begin_a_head, 600),
        (_begin_a_body, 600),
    ],
)
def test_silent_clients_do_not_delay_others(
    ours: Endpoint,
    descriptors: None,
    keep_waiting: Callable[[Endpoint, socket.socket], socket.socket],
    many: int,
) -> None:
    with contextlib.ExitStack() as links:
        for _ in range(many):
            with contextlib.suppress(OSError):  # it has been closed already
                plain = links.enter_context(socket.create_connection((ours.host, ours.port), timeout=20))
                links.enter_context(keep_waiting(ours, plain))
        for _ in range(5):
            began = time.monotonic()
            assert ours.request("GET", "/version").status_code == 200
            assert time.monotonic() - began < 2


def test_idle_client_survives_many_unauthenticated_ones(
    ours: Endpoint,
) -> None:
    request = head("GET", "/api2/json/version", f"Authorization: {ours.token['Authorization']}")
    with connect(ours) as idle, contextlib.ExitStack() as links:
        idle.sendall(request)
        assert status(receive(idle)) == 200
        for _ in range(600):
            plain = links.enter_context(socket.create_connection((ours.host, ours.port), timeout=20))
            with contextlib.suppress(OSError):
                plain.sendall(HELLO)
        idle.sendall(request)
        assert status(receive(idle)) == 200


def test_half_sent_requests_time_out_and_others_are_answered(
    ours: Endpoint, half_sent: list[ssl.SSLSocket]
) -> None:
    began = time.monotonic()
    assert ours.request("GET", "/version").status_code == 200
    assert time.monotonic() - began < 30  # 10 s for the slow, on a busy machine more
    for link in half_sent[:250]:
        link.settimeout(PATIENCE_S)
        assert link.recv(1) == b""
    assert memory_mib(ours) < 400


def test_half_sent_body_times_out(ours: Endpoint) -> None:
    request = head("POST", TICKET, "Content-Type: application/json", "Content-Length: 100")
    began = time.monotonic()
    assert status(send(ours, request + b'{"username":')) == 408
    assert 9 < time.monotonic() - began < 30


def test_idle_connections_make_way_for_new_clients(ours: Endpoint) -> None:
    """All keep their connection open. The one that has been idle longest is closed."""
    links = []
    request = head("GET", "/api2/json/version", f"Authorization: {ours.token['Authorization']}")
    for _ in range(300):
        links.append(connect(ours))
        links[-1].sendall(request)
        assert status(receive(links[-1])) == 200
    assert links[0].recv(1) == b""
    links[-1].sendall(request)
    assert status(receive(links[-1])) == 200
    for link in links:
        link.close()


@pytest.mark.parametrize("text", ["é", "\udcff", "☃", "a\x00b", "%FF%FE", "%E2%98%83"])
@pytest.mark.parametrize(
    "template",
    [
        "Authorization: PVEAPIToken=root@pam!t={}",
        "Authorization: PVEAPIToken={}@pam!t=x",
        "Cookie: PVEAuthCookie={}",
        "Cookie: PVEAuthCookie=PVE:root@pam:00000000::{}",
        "Cookie: PVEAuthCookie=PVE:{}@pam:FFFFFFFF::x",
    ],
)
def test_credentials_with_strange_characters(ours: Endpoint, template: str, text: str) -> None:
    line = template.format(text).encode(errors="surrogateescape")
    request = b"GET /api2/json/version HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n"
    answer = send(ours, request)
    assert status(answer) in (400, 401)
    assert not any(word in answer.decode(errors="replace") for word in PYTHON)


def test_csrf_tokens_and_secrets_with_strange_characters(ours: Endpoint) -> None:
    login = {"username": "root@pam", "password": ours.root_password}
    ticket = ours.request("POST", "/access/ticket", {}, data=login).json()["data"]["ticket"]
    for token in (b"00000000:\xc3\xa9", b"FFFFFFFF:\xff", b"00000000:", "☃".encode()):
        lines = [b"DELETE /api2/json/pools/x HTTP/1.1", b"Host: x"]
        lines += [b"Cookie: PVEAuthCookie=" + ticket.encode(), b"CSRFPreventionToken: " + token]
        assert status(send(ours, b"\r\n".join([*lines, b"", b""]))) == 401
    for password in ("é", "☃", "\0", "a" * 10_000, "PVE:é"):
        answer = ours.request("POST", "/access/ticket", {}, data=login | {"password": password})
        assert answer.status_code in (400, 401)
    answer = ours.request("POST", "/access/ticket", {}, json=login | {"password": "\ud800"})
    assert answer.status_code in (401, 500)
    assert "codec" not in answer.text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"vmid": ' + "9" * 5000 + "}", 400),
        ('{"vmid": 100, "cores": 1e999}', 400),
        ('{"vmid": NaN}', 500),
        ("[" * 100_000, 400),
        ('{"vmid": ' + "[" * 20_000 + "]" * 20_000 + "}", 400),
        ('{"vmid": ' + "[" * 900 + "]" * 900 + "}", 400),
        ('{"vmid": ' + '{"a":' * 900 + "1" + "}" * 900 + "}", 400),
        ('{"vmid": ' + "[" * 65 + "]" * 65 + "}", 400),
        ('{"vmid": {"a": {"b": 1}}}', 400),
        ('{"vmid": [[100]]}', 400),
        ('{"vmid": "\\ud800"}', 500),
        ('{"vmid": "100", "name": "a\\u0000b"}', 400),
        ("{", 500),
        ("3", 500),
        ('{"vmid": true, "memory": 0.1}', 400),
        ('{"vmid": 100, "tags": [null]}', 400),
    ],
)
def test_strange_json(ours: Endpoint, body: str, expected: int) -> None:
    headers = ours.token | {"Content-Type": "application/json"}
    answer = ours.request("POST", f"/nodes/{ours.node}/qemu", headers, data=body)
    assert answer.status_code == expected, answer.text
    words = (*PYTHON, "line 1 column", "Exceeds the limit", "recursion")
    assert not any(word in answer.text for word in words)


@pytest.mark.parametrize("depth", [65, 300, 900, 1000, 3000])
def test_deep_json_before_login(ours: Endpoint, depth: int) -> None:
    body = '{"username": "root@pam", "password": ' + "[" * depth + "]" * depth + "}"
    answer = ours.request("POST", "/access/ticket", {"Content-Type": "application/json"}, data=body)
    assert (answer.status_code, answer.reason) == (
        400,
        "json text or perl structure exceeds maximum nesting level",
    )


@pytest.mark.parametrize(
    "path",
    [
        "/nodes/pve/qemu/100%00/config",
        "/nodes/pve%00/qemu",
        "/%00",
        "/nodes/pve/storage/local/content/local:iso%2Fa%00.iso",
        "/nodes/pve/tasks/UPID:pve:00000001:00000001:60000000:a:%00:root@pam:/status",
        "/access/users/%00@pve",
        "/pools/%00",
        "/nodes/pve/qemu/" + "9" * 5000 + "/config",
        "/nodes/pve/qemu/%C2%B2/config",
        "/nodes/pve/tasks/UPID:pve:00000001:00000001:60000000:a:" + "b" * 4000 + ":root@pam:/log",
        "/nodes/pve%0d%0aX-Evil:%20y/qemu",
        "/no/such%0apath%ff",
        "/cluster/nextid?vmid=%00",
        "/cluster/nextid?vmid=" + "9" * 5000,
        "/cluster/nextid?" + "a=b&" * 1500,
    ],
)
def test_strange_paths_are_answered(ours: Endpoint, path: str) -> None:
    authorization = f"Authorization: {ours.token['Authorization']}"
    answer = send(ours, head("GET", "/api2/json" + path, authorization))
    assert status(answer) in (400, 403, 500, 501)
    assert b"\nX-Evil" not in answer
    assert not any(word in answer.decode(errors="replace") for word in PYTHON)
    body = answer.partition(b"\r\n\r\n")[2]
    assert body == b"" or json.loads(body)["data"] is None
