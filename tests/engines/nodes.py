"""larder-node processes, and ways to hurt them."""

import contextlib
import ctypes
import json
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from engine import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from free_port import free_port  # noqa: E402

BIN = pathlib.Path(os.environ.get("LARDER_BIN", ROOT / "build/release/bin"))
PATIENCE_S = 60
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("LARDER_")}


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: whatever ends the tests


class Node:
    """Runs until `end`. It keeps its ports over `restart`."""

    def __init__(self, memory="512MiB", *flags):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._argv = [
            str(BIN / "larder-node"),
            "--memory",
            memory,
            "--log-level",
            "warn",
            "--scrub-rate",
            "0",  # a byte that a case flips is for the reader to find
            "--data-listen",
            self.address,
            "--control-listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
            "--shm-path",
            f"{self.folder.name}/shm.sock",
            *flags,
        ]
        self.start()

    def start(self):
        report = pathlib.Path(self.folder.name) / "report.json"
        report.unlink(missing_ok=True)
        self.process = subprocess.Popen([*self._argv, "--report", str(report)], env=CLEAN, preexec_fn=die_with_parent)
        end = time.monotonic() + PATIENCE_S
        while not report.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError("larder-node does not start")
            time.sleep(0.01)
        self.report = json.loads(report.read_text())

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        # It is asynchronous: a thread on another core goes on for a moment, and may answer what comes next.
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        while any(task.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] != "T" for task in tasks.iterdir()):
            time.sleep(0.001)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        if self.process.poll() is None:
            self.resume()
            self.kill()
        self.folder.cleanup()

    def metric(self, line):
        """The value of one line of /metrics, given up to the value."""
        with urllib.request.urlopen(f"http://{self.report['http']}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return float(next(each for each in text.splitlines() if each.startswith(line + " ")).rsplit(" ", 1)[1])

    def flip_byte(self, pattern):
        """Flips a bit inside of `pattern` wherever the node's memory has it; how often."""
        flipped = 0
        pid = self.process.pid
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "r+b", 0) as memory:
            for line in maps:
                found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
                if not found:
                    continue
                begin, end = (int(each, 16) for each in found.groups())
                if end - begin < 1 << 20:
                    continue
                for offset in range(begin, end, 64 << 20):
                    size = min((64 << 20) + len(pattern), end - offset)
                    try:
                        memory.seek(offset)
                        content = memory.read(size)
                    except OSError:
                        continue
                    at = content.find(pattern)
                    if at >= 0:
                        memory.seek(offset + at + 7)  # the exponent of its second number, where it is float32
                        memory.write(bytes([content[at + 7] ^ 0x40]))
                        flipped += 1
        return flipped


class Wire:
    """A process that forwards TCP connections to a node, and flips a bit in each stretch of its answers while told to."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._flipping = multiprocessing.Value("i", 0)
        self._flipped = multiprocessing.Value("i", 0)

    def begin(self, target):
        self._process = multiprocessing.get_context("fork").Process(target=self._run, args=(target,), daemon=True)
        self._process.start()
        self._listener.close()

    @property
    def flipped(self):
        return self._flipped.value

    def flip(self, on):
        self._flipping.value = int(on)

    def end(self):
        self._process.kill()
        self._process.join(10)

    def _run(self, target):
        while True:
            ours, _ = self._listener.accept()
            theirs = socket.create_connection(("127.0.0.1", target))
            for source, sink, answers in ((ours, theirs, False), (theirs, ours, True)):
                threading.Thread(target=self._copy, args=(source, sink, answers), daemon=True).start()

    def _copy(self, source, sink, answers):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                if answers and self._flipping.value and len(data) > 8192:
                    data = bytearray(data)
                    data[len(data) // 2] ^= 1
                    self._flipped.value += 1
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
