"""A larder-node in a process of its own, and what the Python tests share."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import larder_kv

BIN = pathlib.Path(os.environ.get("LARDER_BIN", pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"))
PATIENCE_S = 60  # bounds a hang; nothing here takes nearly as long
CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith("LARDER_")}
IDENTITY = {"kind": "kv", "layers": 2, "kv_heads": 2, "head_groups": 2, "hash": "sha256"}


class Node:
    """Runs until `end`. flags go over the defaults."""

    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        report = folder / "report.json"
        argv = [BIN / "larder-node", "--memory", "128MiB", "--log-level", "warn", "--report", report, "--shm-path",
                folder / "shm.sock"]
        for listener in ("data", "control", "http"):
            argv += [f"--{listener}-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*map(str, argv), *flags], env=CLEAN_ENV)
        end = time.monotonic() + PATIENCE_S
        while not report.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError("larder-node does not start")
            time.sleep(0.005)
        self.address = json.loads(report.read_text())["data"]

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        self.folder.cleanup()


class NodeCase(unittest.TestCase):
    """A node for all cases of a class."""

    @classmethod
    def setUpClass(cls):
        cls.node = Node()
        cls.addClassCleanup(cls.node.end)

    def client(self, **options):
        client = larder_kv.Client(self.node.address, environment=False, **{"deadline_ms": 20000, **options})
        self.addCleanup(client.close)
        return client

    def space(self, **options):
        return self.client(**options).namespace({**IDENTITY, "model": self.id()})


def chain(length, seed=1):
    """Hashes, root first."""
    hashes, parent = [], None
    for number in range(length):
        parent = larder_kv.hash_link(parent, f"{seed}/{number}".encode())
        hashes.append(parent)
    return hashes


def blocks(count, nbytes=16384, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (count, nbytes), dtype=np.uint8)


def run_python(code, **env):
    """`code` in a process of its own, which must end well; what it printed."""
    done = subprocess.run([sys.executable, "-c", code], env={**CLEAN_ENV, **env}, capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
    return done.stdout
