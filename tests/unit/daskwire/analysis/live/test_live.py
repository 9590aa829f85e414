"""The command live: figures, problems and bounded disk space, while a capture is recorded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire.analysis.live.monitor import MAX_HOST_NAMES, MAX_NAMES, Monitor
from daskwire.analysis.live.recording import Recording, Tcpdump, is_interface
from daskwire.decoder.file import tcpdump
from daskwire.terminal import live
from daskwire.terminal.cli import wire
from rich.console import Console

from tests.unit.daskwire.build import HELLO, Packet, Talk, g3, golden_bytes, packets_of, pcap, pcapng
from tests.unit.daskwire.conftest import golden_capture
from tests.unit.daskwire.decoder.net.packets.test_tunnels import IPV4_ONLY, vxlan, wrapped
from tests.unit.daskwire.terminal.test_terminal import HOSTILE, harmless
from tests.waiting import until

NAME = "g3-2026.8.0"
PACKETS = packets_of(golden_bytes(NAME))


class Pipe:
    """A pipe with a recording at its end."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as pipe:
            self.recording = Recording(pipe, "the pipe")
        self._writer = os.fdopen(writer, "wb", buffering=0)
        self.written = 0

    def write(self, raw: bytes) -> None:
        self._writer.write(raw)
        self.written += len(raw)
        until(lambda: self.recording.path.stat().st_size == self.written, "the copy of the pipe")

    def end(self) -> None:
        self._writer.close()
        assert self.recording.ended.wait(10)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    with pipe.recording:
        yield pipe
        pipe.end()


def later(packets: list[Packet], seconds: int) -> bytes:
    """Return the records of a pcap without its header, some seconds later."""
    return pcap([(time_ns + seconds * 10**9, data, length) for time_ns, data, length in packets])[24:]


@pytest.mark.parametrize("form", [pcap, pcapng])
def test_parts_of_a_recording_add_up_to_the_whole(pipe: Pipe, form: Callable[[list[Packet]], bytes]) -> None:
    raw = form(PACKETS)
    monitor = Monitor(pipe.recording, window_s=60, now=0.0)
    intervals = []
    for number in range(8):
        pipe.write(raw[number * len(raw) // 8 : (number + 1) * len(raw) // 8])
        intervals.append(monitor.poll(number + 1.0))
    pipe.end()
    intervals.append(monitor.poll(9.0, final=True))
    capture = golden_capture(NAME)
    assert monitor.totals.packets == sum(i.packets for i in intervals) == capture.packets
    assert monitor.totals.wire_bytes == capture.tally.bytes
    assert monitor.totals.messages == len(capture.messages)
    assert sum(monitor.totals.pairs.values()) == int(capture.messages.size.sum())
    assert monitor.totals.ops["compute-task"] == capture.messages.op_name.count("compute-task")
    assert monitor.totals.seconds == 9.0
    names = {monitor.name(address).split()[0] for pair in monitor.totals.pairs for address in pair}
    assert {"scheduler", "client"} <= names


def test_disk_space_is_bounded(pipe: Pipe) -> None:
    monitor = Monitor(pipe.recording, window_s=3, now=0.0)
    pipe.write(pcap([]))
    sizes, message = [], g3({"op": "scatter", "data": bytes(200_000)})
    for second in range(40):
        start_ns = (1_700_000_000 + second) * 10**9
        talk = Talk(client=("10.0.0.2", 40000 + second), time_ns=start_ns).open()
        pipe.write(pcap(talk.say(0, g3(HELLO)).say(1, g3(HELLO)).say(0, message).packets)[24:])
        monitor.poll(float(second))
        sizes.append(pipe.recording.stored)
    part = pipe.written / 40
    assert max(sizes) < 6 * part  # three seconds, the header, and what is being written
    monitor.look_for_problems()
    assert 3 <= monitor.problem_s <= 5
    pipe.end()
    monitor.poll(41.0, final=True)
    assert monitor.totals.messages == 40 * 3


def test_window_has_its_seconds_at_any_rate(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payload is not stored, so the limit of the window's size does not shorten it."""
    monkeypatch.setattr("daskwire.analysis.live.recording.MAX_WINDOW_BYTES", 1_000_000)
    monitor = Monitor(pipe.recording, window_s=10, now=0.0)
    pipe.write(pcap([]))
    for second in range(30):
        talk = Talk(("10.0.0.2", 40000 + second), time_ns=(1_700_000_000 + second) * 10**9).open()
        talk.say(0, g3(HELLO)).say(1, g3(HELLO)).say(0, g3({"op": "scatter"}, bytes(500_000)))
        pipe.write(pcap(talk.packets)[24:])
        monitor.poll(float(second))
    monitor.look_for_problems()
    assert 10 <= monitor.problem_s <= 12 and monitor.problems == []
    assert pipe.recording.stored < pipe.written / 4


def test_tunnel_on_a_given_port_is_decoded() -> None:
    raw = pcap(wrapped(IPV4_ONLY, vxlan(4790)))
    output = run("-", "--tunnel", "udp:4790=vxlan", stdin=raw).stdout.decode()
    assert f"{len(IPV4_ONLY)} packets, 133 messages in " in output
    assert f"{len(IPV4_ONLY)} packets, 0 messages in " in run("-", stdin=raw).stdout.decode()


def test_problems_of_the_window_are_reported_and_forgotten(pipe: Pipe) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3({"op": "register-worker", "address": "tcp://10.0.0.2:3333", "name": "w"}))
    talk.say(1, g3([{"op": "compute-task", "key": "a"}]))
    talk.say(0, g3([{"op": "task-erred", "key": "a", "thread": 1}]))
    monitor = Monitor(pipe.recording, window_s=5, now=0.0)
    pipe.write(pcap(talk.packets))
    monitor.poll(1.0)
    monitor.look_for_problems()
    assert [(row["problem"], row["source"]) for row in monitor.problems] == [("erred tasks", "w")]
    for second in range(2, 20):
        pipe.write(later(PACKETS[:20], 100 + second))
        monitor.poll(float(second))
    monitor.look_for_problems()
    assert "erred tasks" not in [row["problem"] for row in monitor.problems]


@pytest.mark.parametrize(("op", "name"), [("register-worker", "gpu"), ("heartbeat_worker", "10.0.0.2:3333")])
def test_worker_keeps_its_name_after_its_registration_left_the_window(pipe: Pipe, op: str, name: str) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    own_name = {"name": name} if op == "register-worker" else {}
    talk.say(0, g3({"op": op, "address": "tcp://10.0.0.2:3333", **own_name}))
    monitor = Monitor(pipe.recording, window_s=5, now=0.0)
    pipe.write(pcap(talk.packets))
    monitor.poll(1.0)
    for second in range(2, 10):
        pipe.write(later(PACKETS[:2], second))
        monitor.poll(float(second))
    number = len(talk.packets)
    talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://10.0.0.2:3333"}))
    talk.say(1, g3([{"op": "compute-task", "key": "a"}]))
    talk.say(0, g3([{"op": "task-erred", "key": "a", "thread": 1}]))
    pipe.write(later(talk.packets[number:], 10))
    monitor.poll(10.0)
    monitor.look_for_problems()
    assert [(row["problem"], row["source"]) for row in monitor.problems] == [("erred tasks", name)]


def test_pairs_have_the_names_of_the_workers(pipe: Pipe) -> None:
    monitor = Monitor(pipe.recording, window_s=5, now=0.0)
    pipe.write(pcap([]))
    for number in range(MAX_HOST_NAMES + 1):
        talk = Talk(("10.0.0.2", 40000 + number)).open().say(0, g3(HELLO)).say(1, g3(HELLO))
        own = {"address": f"tcp://10.0.0.2:{3000 + number}", "name": f"gpu-{number}"}
        talk.say(0, g3({"op": "register-worker", **own}))
        pipe.write(later(talk.packets, number))
        monitor.poll(number + 1.0)
        names = "+".join(f"gpu-{own}" for own in range(number + 1)) if number < MAX_HOST_NAMES else "worker"
        assert monitor.name("10.0.0.2") == f"{names} 10.0.0.2"
    assert monitor.name("10.0.0.1") == "scheduler 10.0.0.1" and monitor.name("10.9.9.9") == "10.9.9.9"


def test_names_from_the_network_are_limited(pipe: Pipe) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(1, g3([{"op": f"op-{n}"} for n in range(MAX_NAMES + 10)]))
    monitor = Monitor(pipe.recording, window_s=5, now=0.0)
    pipe.write(pcap(talk.packets))
    monitor.poll(1.0, final=True)
    assert len(monitor.totals.ops) == MAX_NAMES


def run(
    source: str, *more: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "daskwire", "live", source, "--interval", "0.1", *more]
    return subprocess.run(
        command, input=stdin, env=os.environ | environment, capture_output=True, timeout=60
    )  # fmt: skip


def test_command_reads_standard_input_and_prints_totals() -> None:
    result = run("-", stdin=pcap(PACKETS))
    number = len(golden_capture(NAME).messages)
    assert result.returncode == 0, result.stderr
    last = result.stdout.decode().splitlines()[-2:]
    assert last[0].startswith(f"{len(PACKETS)} packets, {number} messages in ")
    assert last[1].startswith("no problem found in 115 Dask messages of 4 hosts in ")


def test_a_growing_file_is_shown_until_ctrl_c(tmp_path: Path) -> None:
    path, output, raw = tmp_path / "growing.pcap", tmp_path / "output", pcap(PACKETS)
    path.write_bytes(raw[:-1000])
    command = [sys.executable, "-m", "daskwire", "live", str(path), "--interval", "0.1"]
    with output.open("wb") as stdout, subprocess.Popen(command, stdout=stdout) as process:

        def rates() -> list[str]:
            return re.findall(r"(\S+) messages/s", output.read_text())

        until(lambda: {*rates()} - {"0"} and rates()[-1] == "0", "the messages so far")
        with path.open("ab") as file:
            file.write(raw[-1000:])
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    number = len(golden_capture(NAME).messages)
    last = output.read_text().splitlines()[-2:]
    assert last[0].startswith(f"{len(PACKETS)} packets, {number} messages in ")


TCPDUMP = """#!/bin/sh
trap 'echo "7 packets captured, 9 packets received by filter, 2 packets dropped by kernel" >&2' USR1
echo 'tcpdump: listening on lo, link-type EN10MB (Ethernet), snapshot length 262144 bytes' >&2
cat "$CAPTURE"
for n in 1 2 3 4 5 6; do sleep 0.1; done
"""


def fake_tcpdump(folder: Path, script: str) -> dict[str, str]:
    (folder / "tcpdump").write_text(script)
    (folder / "tcpdump").chmod(0o755)
    (folder / "capture.pcap").write_bytes(pcap(PACKETS))
    return {"PATH": f"{folder}:{os.environ['PATH']}", "CAPTURE": str(folder / "capture.pcap")}


def test_packets_that_tcpdump_drops_are_reported(tmp_path: Path) -> None:
    result = run("lo", **fake_tcpdump(tmp_path, TCPDUMP))
    assert result.returncode == 0, result.stderr
    assert re.search(rb"^331 packets, 133 messages in .* s; 2 packets dropped$", result.stdout, re.MULTILINE)


def test_error_of_tcpdump_that_starts_slowly_is_one_line(tmp_path: Path) -> None:
    script = "#!/bin/sh\nsleep 0.5\necho 'tcpdump: lo: You do not have permission' >&2\nexit 1\n"
    result = run("lo", **fake_tcpdump(tmp_path, script))
    assert (result.returncode, result.stderr) == (3, b"daskwire: tcpdump: lo: You do not have permission\n")


def test_missing_tcpdump_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match="recording an interface needs tcpdump"):
        Tcpdump("lo")


@pytest.mark.parametrize(("arguments", "snaplen"), [((), 4096), (("--snaplen", "0"), 0)])
def test_tcpdump_gets_the_recommended_options(
    tmp_path: Path, arguments: tuple[str, ...], snaplen: int
) -> None:
    script = '#!/bin/sh\necho "tcpdump: $*" >&2\nexit 1\n'
    result = run("lo", *arguments, **fake_tcpdump(tmp_path, script))
    words = f"-i lo {' '.join(tcpdump.options(snaplen))} -U -n -w - {tcpdump.FILTER}"
    assert result.stderr.decode() == f"daskwire: tcpdump: {words}\n"


def test_interfaces_are_those_of_the_network_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (7, "eth0@pod")])
    assert is_interface("eth0@pod") and is_interface("any") and not is_interface("eth1")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "error"),
    [
        (["nosuch0"], 3, "nosuch0: no such interface or file"),
        ([__file__], 3, f"{__file__}: neither pcap nor pcapng"),
    ],
)
def test_errors_are_one_line(arguments: list[str], exit_code: int, error: str) -> None:
    result = CliRunner().invoke(wire, ["live", *arguments])
    assert result.exit_code == exit_code and result.stderr.startswith("daskwire: ") and error in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_lines_escape_untrusted_text() -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO)).say(1, g3([{"op": HOSTILE}]))
    result = run("-", stdin=pcap(talk.packets))
    assert result.returncode == 0 and harmless(result.stdout.decode())


def test_screen_shows_rates_pairs_losses_and_problems(pipe: Pipe) -> None:
    monitor = Monitor(pipe.recording, window_s=60, now=0.0)
    pipe.write(pcap(PACKETS))
    interval = monitor.poll(2.0)
    monitor.problems = [{"problem": HOSTILE, "source": "a", "destination": "b", "what": "c"}]
    monitor.problem_s = 30.0
    console = Console(width=200, force_terminal=True, color_system=None)
    with console.capture() as output:
        console.print(live._screen(monitor, interval, dropped=3, stored=5_000_000))
    text = output.get()
    assert harmless(text)
    for line in (
        r"compute-task +14 +28",
        r"client 10\.99\.7\.115 +scheduler 10\.99\.7\.116 +0\.03 +0\.1",
        r"5 MB stored; 3 packets dropped",
        r"problems in the last 30 s:",
        r".*: a to b: c",
    ):
        assert re.search(rf"^ *{line} *$", text, re.MULTILINE), line
