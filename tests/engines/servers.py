"""Processes that serve HTTP: vLLM's own server, and the proxy."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from engine import ENVIRONMENT, LOGS, MODELS, ROOT
from nodes import die_with_parent, free_port

START_S = 600


class Server:
    """Ended by `end`, with all its children."""

    def __init__(self, name, argv, health="/health"):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.health = health
        self.log = LOGS / f"{name}.log"
        environment = {**os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *argv, "--port", str(self.port)],
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=lambda: (os.setsid(), die_with_parent()),
            )

    def ready(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                self.get(self.health)
                return self
            except (OSError, urllib.error.URLError):
                time.sleep(0.3)
        raise AssertionError(f"it does not start; see {self.log}")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def post(self, path, body=None):
        request = urllib.request.Request(
            self.url + path, json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.read().decode()

    def metric(self, name):
        """Sum over its labels."""
        return sum(
            float(value)
            for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics"), re.M)
        )

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(30)


def vllm_server(name, model, config, *flags):
    return Server(
        name,
        [
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(MODELS / model),
            "--served-model-name",
            "m",
            "--dtype",
            "float32",
            "--enforce-eager",
            "--max-model-len",
            "1024",
            "--block-size",
            "32",
            "--kv-cache-memory-bytes",
            str(64 << 20),
            "--kv-transfer-config",
            json.dumps(config),
            "--no-enable-prefix-caching",
            *flags,
        ],
    )


def proxy(prefill, decode):
    argv = [str(ROOT / "client/examples/vllm_pd/proxy.py")]
    for server in prefill:
        argv += ["--prefill", server.url]
    for server in decode:
        argv += ["--decode", server.url]
    return Server("proxy", argv)
