"""Generate requests from the endpoint's own schema, mutate them, and mutate the bytes of HTTP.

What it asks of an answer is little and always true: there is one (or the connection is closed), it has a
status, and no word of Python's is in it. ``test_fuzz.py`` sends hundreds, ``benchmarks/endpoint_fuzz.py``
tens of thousands. A seed makes a run repeatable as far as the endpoint's own times allow.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from minipve.api import routing
from minipve.config.rules import schema

from tests.contract.endpoint import Endpoint

PYTHON = re.compile(
    r"Traceback|\[Errno|got itself in trouble|internal error of the endpoint|object has no attribute|NoneType"
    r"|codec can't|invalid literal|unhashable|not subscriptable|positional argument|unexpected keyword"
    r"|(?:Key|Value|Type|Index|Attribute|Recursion|Overflow|Unicode\w+|Assertion)Error|<class '"
    r"|Exceeds the limit"
    r"|string indices|out of range|not JSON serializable|embedded null|object at 0x"
)
ANSWER_S = 60.0
VMIDS = [*range(100, 104), 99, 0, 7300, 999999999]
NAMES = [
    "fuzz",
    "a-b.c",
    "",
    "root@pam",
    "fuzz@pve",
    "fuzz@pve!t",
    "local",
    "pve",
    "contract",
    "vmbr0",
    "vmbr7",
]
VOLUMES = [
    "none",
    "cdrom",
    "local:0.001",
    "local:cloudinit",
    "local:100/vm-100-disk-0.qcow2",
    "local:101/vm-101-disk-0.qcow2",
    "local:100/base-100-disk-0.qcow2/101/vm-101-disk-0.qcow2",
    "local:iso/fuzz.iso",
    "local:import/fuzz.qcow2",
    "local:snippets/x.yaml",
    "/etc/passwd",
    "other:100/x.raw",
]
STRANGE: list[Any] = [
    "", " ", "0", "1", "-1", "9" * 5000, "1e999", "0x10", "1.5", "NaN", "true", "\0", "a\0b", "\n",
    "a\nb: c", "\r", "\x85", "\u2028", "\u0661", "é", "☃", "\U0001f600", "..", "../../../etc/passwd",
    "/", "//", "%", "%00",
    "%s%n", "{}", "{0}", "'\"`$(x)", ",", ",,", "=", "a=b,c=d", ";", ":", "local:", ":1", "a" * 300,
    "x" * 20_000,
    "<b>", "[PENDING]", "#", "\\", "~", "*", "None", "null", "UPID:pve:1:2:3:a:b:c:", "0" * 400, "1" * 19,
    "-" * 50,
]  # fmt: skip
NESTED: list[Any] = [
    None,
    True,
    False,
    1.5,
    -1,
    10**30,
    [],
    {},
    [[]],
    [None],
    ["a", ["b"]],
    {"a": {"b": []}},
    "\ud800",
]
Headers = dict[str, str]


@dataclass
class Caller:
    """A caller: a name, authentication headers, and how often it is chosen."""

    name: str
    headers: Headers
    weight: int = 4


@dataclass
class Fuzzer:
    """Sends requests and judges the answers. ``faults`` collects forbidden ones."""

    endpoint: Endpoint
    callers: list[Caller]
    random: random.Random
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.methods = sorted(routing.load())
        self.context = ssl.create_default_context(cafile=str(self.endpoint.ca_file))
        self.link: ssl.SSLSocket | None = None

    def once(self) -> None:
        """Send a request. 90 % of them are well-formed HTTP."""
        caller = self.random.choices(self.callers, [caller.weight for caller in self.callers])[0]
        data, sample = self.request(caller)
        if self.random.random() < 0.1:
            self.judge(caller, sample, self.exchange(self.bent(data), patience_s=0.3))  # it may not be whole
        else:
            self.judge(caller, sample, self.exchange(data, ANSWER_S))
        self.sent += 1

    # ---- requests

    def request(self, caller: Caller) -> tuple[bytes, str]:
        """Return the bytes of a request, and its first line."""
        verb, template = self.pick()
        facts = schema.method(verb, template).properties
        given = self.parameters(facts)
        places = re.findall(r"{([^}]+)}", template)
        path = template
        for place in places:
            value = given.pop(place, None)
            path = path.replace(f"{{{place}}}", _quoted(value, ":/" if place == "volume" else ""), 1)
        if self.random.random() < 0.02:
            path += _quoted(self.random.choice(STRANGE)[:2000])
        return self.encode(verb, path, given, caller)

    def pick(self) -> tuple[str, str]:
        """Choose a method. Those that start emulators, wait for guests or revoke privileges are rare."""
        while True:
            verb, template = self.random.choice(self.methods)
            slow = "/status/" in template or "/agent/" in template
            if not slow or self.random.random() < 0.05:
                return verb, template

    def parameters(self, facts: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Choose parameters of a method: required ones almost always, the others sometimes."""
        optional = [name for name, fact in facts.items() if fact.get("optional")]
        few = set(self.random.sample(optional, min(len(optional), self.random.choice([0, 1, 1, 2, 5]))))
        chosen = [n for n, fact in facts.items() if n in few or not fact.get("optional")]
        given = {name: self.value(name, facts[name]) for name in chosen if self.random.random() < 0.98}
        if self.random.random() < 0.03:
            given[self.random.choice(["nosuch", "", "a\nb", "vmid[0]", "é", "\0"])] = self.random.choice(
                STRANGE
            )
        return given

    def value(self, name: str, facts: dict[str, Any]) -> Any:
        """Return mostly a value that the schema accepts, else a strange one."""
        chance = self.random.random()
        if chance < 0.10:
            return self.random.choice(STRANGE)
        if chance < 0.13:
            return self.random.choice(NESTED)
        special: dict[str, Callable[[], Any]] = {
            "node": lambda: "pve",
            "vmid": lambda: self.random.choice(VMIDS),
            "newid": lambda: self.random.choice(VMIDS),
            "storage": lambda: "local",
            "volume": lambda: self.random.choice(VOLUMES),
            "userid": lambda: self.random.choice(["fuzz@pve", "nosuch@pve", "fuzz@pve!t"]),
            "upid": lambda: self.random.choice(
                ["UPID:pve:00000001:00000002:60000000:qmstart:100:root@pam:", "x"]
            ),
            "disk": lambda: self.random.choice(["scsi0", "ide2", "virtio1"]),
            "iface": lambda: self.random.choice(["vmbr7", "vmbr8"]),
            "memory": lambda: self.random.choice([16, 32, "current=32"]),
            "poolid": lambda: self.random.choice(["fuzz", "contract", "fuzz/x"]),
            "tokenid": lambda: self.random.choice(["t", "fz", "nosuch"]),
            "filename": lambda: self.random.choice(
                ["fuzz.iso", "fuzz.qcow2", "vm-100-disk-7.qcow2", "x.vmdk"]
            ),
            "delete": lambda: self.random.choice(["scsi0,net0", "unused0", "ide2", "description"]),
            "timeout": lambda: 1,
            "url": lambda: self.random.choice(["http://127.0.0.1:9/x.iso", "http://[::1", "http://a b/"]),
        }
        return special[name]() if name in special else self.of_type(facts)

    def of_type(self, facts: dict[str, Any]) -> Any:
        """Return a value of the required type, enumeration or format."""
        if "enum" in facts:
            return self.random.choice(facts["enum"])
        kind = facts.get("type", "string")
        if kind == "boolean":
            return self.random.choice([0, 1])
        if kind in ("integer", "number"):
            low, high = int(float(facts.get("minimum", 0))), int(float(facts.get("maximum", 100)))
            return self.random.choice(
                [low, high, self.random.randint(min(low, high), high), low - 1, high + 1]
            )
        if kind == "array":
            return [self.random.choice(["a", "b"]) for _ in range(self.random.randint(0, 3))]
        if (fmt := schema.property_format(facts)) is not None:
            return self.property_string(fmt)
        return self.of_format(str(facts.get("format", "")))

    def property_string(self, fmt: Any) -> str:
        """Return parts of a property string, in any order, some of them wrong."""
        names = self.random.sample(sorted(fmt), min(len(fmt), self.random.choice([1, 2, 3, 5])))
        names += [n for n, fact in fmt.items() if not fact.get("optional") and "alias" not in fact]
        parts = []
        for name in dict.fromkeys(names):
            strange = self.random.random() < 0.05
            value = self.random.choice(STRANGE) if strange else self.of_type(fmt[name])
            parts.append(str(value) if fmt[name].get("default_key") else f"{name}={value}")
        return ",".join(parts)

    def of_format(self, fmt: str) -> str:
        """Return a text of a named format."""
        known = {
            "pve-vmid": ["100", "101"], "pve-node": ["pve"], "pve-storage-id": ["local"],
            "pve-volume-id": VOLUMES, "pve-volume-id-or-qm-path": VOLUMES,
            "pve-volume-id-or-absolute-path": VOLUMES, "mac-addr": ["02:00:00:00:00:01"],
            "disk-size": ["1M", "+1M"],
            "pve-bridge-id": ["vmbr0"], "CIDRv4": ["10.1.1.1/24"], "ipv4": ["10.1.1.1"],
            "pve-tag": ["a", "B"], "pve-priv": ["VM.Audit"], "dns-name": ["a.b"],
            "urlencoded": ["ssh-rsa%20AAAA%20x"],
            "pve-ipv4-config": ["dhcp", "10.0.0.1/24"], "pve-qm-bootdev": ["scsi0", "net0"],
        }  # fmt: skip
        base = fmt.removesuffix("-list").removesuffix("-opt")
        return str(self.random.choice(known.get(base, NAMES)))

    # ---- HTTP

    def encode(self, verb: str, path: str, given: dict[str, Any], caller: Caller) -> tuple[bytes, str]:
        """Return a request's bytes, with the parameters in the query, a form, JSON or an upload."""
        headers = {"Host": "x", **caller.headers}
        body, target = b"", "/api2/json" + path
        style = (
            "query" if verb in ("GET", "DELETE") else self.random.choice(["form", "form", "json", "upload"])
        )
        if style == "json":
            body, headers["Content-Type"] = json.dumps(given).encode(), "application/json"
            if self.random.random() < 0.1:
                body = self.deep(body)
        elif style == "upload" and self.random.random() < 0.5:
            body, headers["Content-Type"] = self.parts(given), "multipart/form-data; boundary=b"
        else:
            text = urlencode([pair for k, v in given.items() for pair in _pairs(k, v)], errors="replace")
            if style == "query":
                target += f"?{text}" if text else ""
            else:
                body, headers["Content-Type"] = text.encode(), "application/x-www-form-urlencoded"
        if body or verb in ("POST", "PUT"):
            headers["Content-Length"] = str(len(body))
        first = f"{verb} {target} HTTP/1.1"
        lines = [first, *(f"{key}: {value}" for key, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape") + body, first

    def deep(self, body: bytes) -> bytes:
        """Return the JSON object with an additional, deeply nested member."""
        depth = self.random.choice([10, 63, 64, 65, 300, 900, 980, 1000, 3000, 50_000])
        begin, end = self.random.choice([(b"[", b"]"), (b'{"a":', b"}")])
        whole = self.random.random() < 0.9
        return b'{"password": ' + begin * depth + b"1" + end * depth * whole + b", " + body[1:]

    def parts(self, given: dict[str, Any]) -> bytes:
        """Return form fields and a file that may not be an image."""
        names = [*given, *self.random.sample(["content", "checksum", "filename"], 1)]
        data = b""
        for name in names:
            text = str(given.get(name, self.random.choice(STRANGE)))[:3000].encode("utf-8", "replace")
            file = b'; filename="fuzz.iso"' if name == "filename" else b""
            field_name = name.encode("utf-8", "replace")
            data += b'--b\r\nContent-Disposition: form-data; name="' + field_name + b'"' + file
            data += b"\r\n\r\n" + (b"image" * 100 if file else text) + b"\r\n"
        return data + b"--b--\r\n"

    def bent(self, data: bytes) -> bytes:
        """Return mutated bytes of HTTP."""
        place = self.random.randrange(len(data))
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        noise = self.random.randbytes(self.random.choice([1, 4, 200]))
        return self.random.choice(
            [
                lambda: data[:place],
                lambda: data[:place] + noise + data[place:],
                lambda: data[:place] + noise + data[place + len(noise) :],
                lambda: data.replace(b"\r\n", b"\n"),
                lambda: data.replace(b"HTTP/1.1", b"HTTP/" + noise[:3]),
                lambda: head + b"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
                lambda: head + b"\r\nContent-Length: 7\r\n\r\n" + body,
                lambda: (
                    b"\r\n".join([lines[0], *self.random.sample(lines[1:], len(lines) - 1)])
                    + b"\r\n\r\n"
                    + body
                ),
                lambda: head + b"\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + body,
                lambda: head + b"\r\nExpect: 100-continue\r\n\r\n" + body,
                lambda: (
                    self.random.choice([b"PATCH", b"HEAD", b"get", b"OPTIONS"]) + data[data.index(b" ") :]
                ),
                lambda: data + data,
                lambda: data.replace(b"api2/json", b"api2/" + noise),
                lambda: data.replace(b"PVEAPIToken=", b"PVEAPIToken=" + noise),
            ]
        )()

    def exchange(self, data: bytes, patience_s: float) -> bytes:
        """Return the answer; empty when the endpoint closes the connection or waits for more bytes."""
        try:
            link = self.link or self.connect()
            link.settimeout(patience_s)
            link.sendall(data)
            answer = self.receive(link)
        except OSError:
            answer = b""
        if not answer or b"\r\nConnection: close" in answer[:2000] or not answer.startswith(b"HTTP/1.1 2"):
            self.close()
        return answer

    def connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection((self.endpoint.host, self.endpoint.port), timeout=ANSWER_S)
        self.link = self.context.wrap_socket(plain, server_hostname=self.endpoint.host)
        return self.link

    def close(self) -> None:
        """Close the connection."""
        if self.link is not None:
            with contextlib.suppress(OSError):
                self.link.close()
        self.link = None

    def receive(self, link: ssl.SSLSocket) -> bytes:
        """Receive an answer."""
        data = b""
        while True:
            part = link.recv(65536)
            data += part
            head, gap, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            if not part or (gap and length and len(body) >= int(length[1])) or body.endswith(b"0\r\n\r\n"):
                return data

    # ---- judgement

    def judge(self, caller: Caller, sample: str, answer: bytes) -> None:
        """Count the status, and record a fault."""
        match = re.match(rb"HTTP/(?:0\.9|1\.[01]) (\d{3}) ", answer)
        self.statuses[int(match[1]) if match else 0] += 1
        text = answer.decode("utf-8", "replace")
        if answer and not match:
            self.faults.append(f"no status: {caller.name}: {sample[:300]!r}: {text[:200]!r}")
        elif match and (found := PYTHON.search(text)):
            self.faults.append(f"{found[0]!r} in {caller.name}: {sample[:300]!r}: {text[-300:]!r}")


def _quoted(value: Any, safe: str = "") -> str:
    return quote(str(value), safe=safe, errors="replace")


def _pairs(key: str, value: Any) -> list[tuple[str, str]]:
    values = value if isinstance(value, list) else [value]
    return [(key, str(item)) for item in values]


def prepare(endpoint: Endpoint) -> None:
    """Create targets: a machine with disks, a template, a running machine."""
    root, pool = endpoint.root(), {"pool": endpoint.pool, "memory": 32, "kvm": 0}
    here = root.nodes("pve")
    endpoint.wait(here.qemu.post(vmid=100, scsi0="local:0.01", ide2="local:cloudinit", **pool), root)
    endpoint.wait(here.qemu.post(vmid=101, scsi0="local:0.01", net0="virtio,bridge=vmbr0", **pool), root)
    endpoint.wait(here.qemu.post(vmid=102, net0="virtio,bridge=vmbr0", agent=1, start=1, **pool), root)
    endpoint.wait(here.qemu(101).template.post(), root)


def callers(endpoint: Endpoint) -> list[Caller]:
    """Return root twice, the lab's token, one with few privileges, and two without valid credentials."""
    root = endpoint.root()
    login = {"username": "root@pam", "password": endpoint.root_password}
    ticket = endpoint.request("POST", "/access/ticket", {}, data=login).json()["data"]
    signed = {
        "Cookie": f"PVEAuthCookie={quote(ticket['ticket'])}",
        "CSRFPreventionToken": ticket["CSRFPreventionToken"],
    }
    full = root.access.users("root@pam").token("fuzzer").post(privsep=0)["value"]
    root.access.users.post(userid="little@pve", password="little-secret")
    root.access.acl.put(path="/vms", users="little@pve", roles="PVEAuditor")
    little = root.access.users("little@pve").token("tt").post(privsep=0)["value"]
    return [
        Caller("root", signed),
        Caller("root's token", {"Authorization": f"PVEAPIToken=root@pam!fuzzer={full}"}),
        Caller("lab's token", dict(endpoint.token)),
        Caller("little token", {"Authorization": f"PVEAPIToken=little@pve!tt={little}"}),
        Caller("nobody", {}, weight=1),
        Caller("liar", {"Authorization": "PVEAPIToken=root@pam!fuzzer=0000-0000"}, weight=1),
    ]
