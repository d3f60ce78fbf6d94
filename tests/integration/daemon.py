"""A larder-node of one's own, and larderctl, for tests with real processes.

Standard library only. Every wait has a bound; every process is ended by its own id.
"""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LARDER_BIN", ROOT / "build/release/bin"))
NODE, CTL = str(BIN / "larder-node"), str(BIN / "larderctl")
PATIENCE_S = 60  # bounds a hang; nothing here takes nearly as long
HAVE_UCX = os.environ.get("LARDER_HAVE_UCX", "ON") == "ON"  # what the programs were built with
CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith("LARDER_")}


def run(*argv, env=None, stdin=None):
    return subprocess.run(argv, env={**CLEAN_ENV, **(env or {})}, input=stdin, capture_output=True,
                          timeout=PATIENCE_S, check=False)


def until(condition, what):
    """Waits for something that must come true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("waited in vain for " + what)


class Node:
    """A running larder-node on free ports."""

    def __init__(self, folder, *flags, name="node", ports=None):
        self.report_path = pathlib.Path(folder) / (name + ".json")
        self.log_path = pathlib.Path(folder) / (name + ".log")
        ports = ports or {}
        self.argv = [NODE, "--memory", "64MiB", "--report", str(self.report_path),
                     "--shm-path", str(pathlib.Path(folder) / (name + ".sock"))]
        for listener in ("data", "control", "http"):
            self.argv += [f"--{listener}-listen", ports.get(listener, "127.0.0.1:0")]
        self.argv += flags
        self.start()

    def start(self):
        self.report_path.unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.argv, env=CLEAN_ENV, stdout=log, stderr=log)
        until(lambda: self.report_path.exists() or self.process.poll() is not None, "the node's report")
        if self.process.poll() is not None:
            raise AssertionError("larder-node ended: " + self.log())
        self.report = json.loads(self.report_path.read_text())

    def log(self):
        return self.log_path.read_text()

    def http(self, path, method="GET"):
        connection = http.client.HTTPConnection(self.report["http"], timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name):
        for line in self.http("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError("no metric " + name)

    def ctl(self, *argv, **more):
        return run(CTL, "-e", self.report["data"], *argv, **more)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="larder-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def node(self, *flags, **more):
        node = Node(self.folder, *flags, **more)
        self.addCleanup(node.close)
        return node

    def refused(self, *flags, expect, env=None):
        """One line on standard error that has all of `expect`, and exit 2."""
        done = run(NODE, "--shm-path", str(self.folder / "x.sock"), *flags, env=env)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, 2, text)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith("larder-node: "), text)
        for part in expect:
            self.assertIn(part, text)
