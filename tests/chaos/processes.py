"""The processes of a chaos run: nodes, etcd, clients, and who watches etcd. Each is ended by its own id."""
import base64
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import threading
import time
import urllib.request

CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith("LARDER_")}
PATIENCE_S = 30
SSD_BYTES, DISK_BYTES, SEGMENT_BYTES = 48 << 20, 96 << 20, 4 << 20


def now_us():
    return time.monotonic_ns() // 1000


class Hang(Exception):
    """Something did not come to its end in time."""


class Process:
    """A child whose output goes to a log."""

    def __init__(self, name, argv, log):
        self.name, self.argv, self.log = name, argv, log
        self.meant_down = True  # an end of it now is our doing
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(word) for word in self.argv], env=CLEAN_ENV, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)
        self.meant_down = False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.meant_down = True
        if self.alive():
            self.process.kill()
            self.process.wait()

    def wait(self):
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise Hang(f"{self.name} did not end within {PATIENCE_S} s") from error

    def log_end(self, lines=12):
        text = pathlib.Path(self.log).read_text(errors="replace") if pathlib.Path(self.log).exists() else ""
        return text.splitlines()[-lines:]


class Node(Process):
    def __init__(self, name, programs, network, etcd_address, folder, relayed):
        self.inner = network.inner(name)
        advertised = network.outer(name) if relayed else self.inner
        self.address = advertised + ":7400"
        self.ssd = folder / (name + ".ssd")
        self.ssd.mkdir()
        if network.mounts:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(self.ssd)], check=True)
        argv = [*network.prefix(name), programs / "larder-node", "--node-id", name,
                "--data-listen", self.inner + ":7400", "--control-listen", self.inner + ":7401",
                "--http-listen", self.inner + ":7402", "--advertise", advertised,
                "--membership", "etcd", "--etcd-endpoints", etcd_address, "--cluster", "chaos", "--lease", "1s",
                "--away-grace", "5s", "--state-dir", folder / (name + ".state"), "--shm-path", folder / (name + ".sock"),
                "--memory", "48MiB", "--huge-pages", "false", "--ssd", self.ssd, "--ssd-bytes", f"{SSD_BYTES >> 20}MiB",
                "--ssd-segment-bytes", f"{SEGMENT_BYTES >> 20}MiB", "--drain-budget", "3s", "--hand-over-budget", "5s",
                "--report", folder / (name + ".json")]
        super().__init__(name, argv, folder / (name + ".log"))
        self.one_fault = threading.Lock()  # at a time

    def health(self):
        """What it says of itself; None when it can't be asked."""
        try:
            with urllib.request.urlopen(f"http://{self.inner}:7402/healthz", timeout=2) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError):
            return None

    def stop(self):
        """SIGTERM, and whatever has to happen until it has ended."""
        self.meant_down = True
        self.signal(signal.SIGTERM)
        code = self.wait()
        if code != 0:
            raise RuntimeError(f"{self.name} ended with {code} after SIGTERM")

    def segments(self):
        return [path for path in self.ssd.rglob("*") if path.is_file() and path.stat().st_size >= SEGMENT_BYTES]

    def rot(self, seed, count):
        """Flips bits of what lies in its segments."""
        dice = random.Random(seed)
        segments = sorted(self.segments())
        for _ in range(count if segments else 0):
            with open(dice.choice(segments), "r+b") as file:
                at = dice.randrange(SEGMENT_BYTES)
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 1 << dice.randrange(8)]))

    def fill_disk(self):
        """Takes every byte that is free. Returns what gives them back."""
        path = self.ssd / "somebody-elses"
        with open(path, "wb", buffering=0) as file:
            size = 1 << 20
            while size >= 1:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 16
        return path.unlink


class Etcd(Process):
    def __init__(self, network, folder):
        self.address = network.inner("etcd") + ":2379"
        peer = f"http://{network.inner('etcd')}:2380"
        super().__init__("etcd", [*network.prefix("etcd"), "etcd", "--data-dir", folder / "etcd",
                                  "--listen-client-urls", "http://" + self.address,
                                  "--advertise-client-urls", "http://" + self.address,
                                  "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                                  "--initial-cluster", "default=" + peer, "--unsafe-no-fsync"], folder / "etcd.log")

    def healthy(self):
        done = subprocess.run(["etcdctl", "--endpoints", self.address, "--command-timeout", "1s", "endpoint", "health"],
                              env={**CLEAN_ENV, "ETCDCTL_API": "3"}, capture_output=True, check=False)
        return done.returncode == 0


class EtcdWatch:
    """When etcd had which change of the cluster. Ends when etcd does."""

    def __init__(self, etcd):
        self.process = subprocess.Popen(
            ["etcdctl", "--endpoints", etcd.address, "watch", "--prefix", "/larder/chaos/", "-w", "json"],
            env={**CLEAN_ENV, "ETCDCTL_API": "3"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.epochs, self.gone = [], []  # (version, when), (node that is not live any more, when)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.process.stdout:
            when = now_us()
            for event in json.loads(line).get("Events") or []:
                key = base64.b64decode(event["kv"]["key"]).decode().removeprefix("/larder/chaos/")
                if key == "epoch" and "value" in event["kv"]:
                    self.epochs.append((int(base64.b64decode(event["kv"]["value"])), when))
                elif key.startswith("live/") and event.get("type") in (1, "DELETE"):
                    self.gone.append((key.removeprefix("live/"), when))

    def close(self):
        self.process.kill()
        self.process.wait()


class Client:
    """A running larder-chaos-client."""

    def __init__(self, name, argv, log):
        self.name = name
        self.lock = threading.Lock()
        with open(log, "ab") as errors:
            self.process = subprocess.Popen([str(word) for word in argv], env=CLEAN_ENV, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, text=True)
        self.answer(PATIENCE_S)

    def answer(self, timeout_s):
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            raise Hang(f"{self.name} did not answer within {timeout_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died with {self.process.wait()}")
        return json.loads(line)

    def ask(self, command, timeout_s=PATIENCE_S):
        with self.lock:
            try:
                self.process.stdin.write(command + "\n")
                self.process.stdin.flush()
            except OSError as error:
                raise RuntimeError(f"{self.name} died with {self.process.wait()}") from error
            return self.answer(timeout_s)

    def close(self):
        self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Hang(f"{self.name} did not end within {PATIENCE_S} s") from None
