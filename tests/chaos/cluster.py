#!/usr/bin/env python3
"""Real nodes with SSD folders, a real etcd, real clients that look at every byte, and faults drawn from one seed.

    tests/chaos/cluster.py [--seconds 60] [--seed N] [--nodes 4] [--replicas 2]
    tests/chaos/cluster.py --figures    kill, stop and drain one at a time, and what each costs
    tests/chaos/cluster.py --canary     clients that don't verify: passes only if wrong bytes are seen

Ends with a table; exit 1 on a wrong byte, a hang, a client that died, a call beyond its bound, a node that ended by
itself, or a cluster that does not serve hits again 30 s after the faults. README.md says what is injected and how.
LARDER_BIN is the folder of the programs (build/release/bin).
"""
import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import faults  # noqa: E402
import figures  # noqa: E402
import network  # noqa: E402
from processes import Client, Etcd, EtcdWatch, Hang, Node, PATIENCE_S, now_us  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
OVERDUE_S = 5  # a call so long after its deadline hangs


class Run:
    def __init__(self, options, net, folder):
        self.options, self.network, self.folder = options, net, folder
        self.programs = pathlib.Path(os.environ.get("LARDER_BIN", ROOT / "build/release/bin"))
        self.failures, self.windows = [], []
        self.fault_spans = []  # (fault, when it began, when it had ended) in microseconds
        self.failed = threading.Event()
        self.begun = time.monotonic()
        self.given_up = set()  # clients that hang: said once
        self.lock = threading.Lock()
        self.over = threading.Event()

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:5.1f}] {text}", flush=True)

    def fail(self, text):
        with self.lock:
            self.failures.append(text)
        self.say("FAILED: " + text)
        self.failed.set()

    # The cluster

    def begin(self):
        names = [f"n{number}" for number in range(1, self.options.nodes + 1)]
        hosts = ["etcd", "clients", *names]
        self.network = self.network(hosts)
        self.say("cuts by " + self.network.name)
        relayed = names[-1:] if self.network.mounts else names
        self.etcd = Etcd(self.network, self.folder)
        self.etcd.start()
        self.until(self.etcd.healthy, "etcd serves")
        self.watch = EtcdWatch(self.etcd)
        self.relays, self.nodes = {}, {}
        for name in names:
            etcd = self.etcd.address
            if name in relayed:
                etcd = self.relay(name)
            self.nodes[name] = Node(name, self.programs, self.network, etcd, self.folder, name in relayed)
            self.nodes[name].start()
        self.until(lambda: all(self.complete(node) for node in self.nodes.values()), "every node has the whole table")
        threading.Thread(target=self.mind, daemon=True).start()
        self.clients = [self.client(number) for number in range(self.options.clients)]
        self.begun = time.monotonic()
        for client in self.clients:
            client.ask("begin")

    def relay(self, name):
        """Puts one before the node, and where there are no namespaces before etcd as the node sees it. Returns etcd's
        address for the node."""
        inner, outer = self.network.inner(name), self.network.outer(name)
        pairs = [f"{outer}:{port}={inner}:{port}" for port in (7400, 7401, 7402)]
        etcd = self.etcd.address
        if not self.network.mounts:
            pairs.append(f"{outer}:2379={etcd}")
            etcd = outer + ":2379"
        self.relays[name] = network.Relay(self.network.prefix(name), pairs)
        if not self.network.mounts:
            self.network.relays[name] = self.relays[name]
        return etcd

    def complete(self, node):
        health = node.health()
        return health is not None and health["status"] == "ok" and health["table_nodes"] == len(self.nodes)

    def client(self, number):
        options = self.options
        argv = [*self.network.prefix("clients"), self.programs / "larder-chaos-client", "--name", f"client {number}",
                "--seeds", ",".join(node.address for node in self.nodes.values()),
                "--transport", "auto" if number % 2 else "tcp", "--seed", options.seed * 100 + number,
                "--content", options.seed, "--replicas", options.replicas, "--deadline-us", options.deadline_ms * 1000]
        if options.canary:
            argv.append("--unverified")
        return Client(f"client {number}", argv, self.folder / f"client{number}.log")

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            for node in getattr(self, "nodes", {}).values():
                if not node.meant_down and not node.alive():
                    raise RuntimeError(f"{node.name} ended: " + " / ".join(node.log_end(3)))
            if time.monotonic() > end:
                raise Hang("waited in vain until " + what)
            time.sleep(0.05)

    def mind(self):
        """Looks after nodes and clients until the run is over."""
        while not self.over.wait(0.25):
            for node in self.nodes.values():
                if not node.meant_down and not node.alive() and not self.over.is_set():
                    node.meant_down = True
                    self.fail(f"{node.name} ended by itself with {node.process.returncode}: " +
                              " / ".join(node.log_end()))
            for client in getattr(self, "clients", []):
                if client.name not in self.given_up and self.guard(self.look_at, client) is None:
                    self.given_up.add(client.name)

    def look_at(self, client):
        """Whether it lives and none of its calls hangs."""
        overdue_s = client.ask("stats")["overdue_us"] / 1e6
        if overdue_s > OVERDUE_S:
            raise Hang(f"{client.name} hangs: a call is {overdue_s:.1f} s beyond its deadline")
        return True

    def guard(self, call, *arguments):
        """What goes wrong in it is the run's failure."""
        try:
            return call(*arguments)
        except (Hang, RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.fail(str(error) or repr(error))
            return None

    # Faults

    def plan(self):
        options, names = self.options, list(self.nodes)
        if options.figures:
            return faults.figures_plan(options.seed, options.seconds, names)
        kinds = ("flip", "kill-rot") if options.canary else tuple(
            kind for kind in faults.KINDS if kind != "full-disk" or self.network.mounts)
        return faults.plan(options.seed, options.seconds, names, list(self.relays), kinds)

    def torment(self):
        injector = faults.Injector(self)
        threads = []
        shift = 0  # the plan's times are the earliest: who is measured waits until the others have really ended
        for fault in self.plan():
            while time.monotonic() < self.begun + fault.at + shift and not self.failed.is_set():
                time.sleep(0.02)
            while fault.kind in faults.ALONE and not self.failed.is_set() and not self.calm():
                time.sleep(0.02)
            shift = time.monotonic() - self.begun - fault.at
            if self.failed.is_set() or fault.at + shift + fault.seconds > self.options.seconds:
                break
            self.say(str(fault))
            threads.append(threading.Thread(target=self.guard, args=(self.inject, injector, fault)))
            threads[-1].start()
        while time.monotonic() < self.begun + self.options.seconds and not self.failed.is_set():
            time.sleep(0.05)
        for thread in threads:
            thread.join()

    def calm(self):
        """Nothing is wrong any more, and everybody has had a moment to notice."""
        return all(span[2] is not None and now_us() - span[2] > 1_500_000 for span in self.fault_spans)

    def inject(self, injector, fault):
        span = [fault, now_us(), None]
        self.fault_spans.append(span)
        injector.apply(fault)
        span[2] = now_us()
        if fault.kind in faults.ALONE:
            self.measure(fault.kind, fault, fault.began_us)

    def empty(self, node):
        """Its SSD is a new one."""
        for path in node.ssd.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def measure(self, kind, fault, begin_us):
        """What the gets of the moment after a fault took. Waits until they have ended."""
        longest_s = self.options.deadline_ms * 4 / 1000
        time.sleep(max(0, begin_us / 1e6 + faults.WINDOW_US / 1e6 + longest_s + 0.5 - now_us() / 1e6))
        disturbed = any(span[0] is not fault and span[1] < begin_us + faults.MEASURED_S * 1e6 and
                        (span[2] or now_us()) > begin_us - 500_000 for span in self.fault_spans)
        if disturbed:
            return
        for client in self.clients:
            window = client.ask(f"window {begin_us} {begin_us + faults.WINDOW_US}")
            self.windows.append((kind, fault.node, begin_us, window))

    def recover(self):
        """Until every client is served hits by every node again."""
        threads = [threading.Thread(target=self.guard, args=(self.settle, client)) for client in self.clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def settle(self, client):
        budget_s = 30
        answer = client.ask(f"settle {budget_s * 1000}", budget_s + PATIENCE_S)
        if answer["why"]:
            self.fail(f"{client.name} is not served {budget_s} s after the faults: {answer['why']}")
        else:
            self.say(f"{client.name} is served hits by every node {answer['ms'] / 1000:.1f} s after the faults")

    # The end

    def end(self):
        stats = [self.guard(client.ask, "end", 60) for client in self.clients]
        epochs = [self.guard(client.ask, "epochs") for client in self.clients]
        self.over.set()
        for client in self.clients:
            code = self.guard(client.close)
            if code not in (0, None):
                self.fail(f"{client.name} ended with {code}")
        for node in self.nodes.values():
            if node.alive():
                self.guard(node.stop)
        return [each for each in stats if each], [each for each in epochs if each]

    def kill_all(self):
        self.over.set()
        for client in getattr(self, "clients", []):
            client.process.kill()
            client.process.wait()
        processes = [*getattr(self, "nodes", {}).values(), getattr(self, "etcd", None)]
        for process in processes:
            if process is not None:
                process.kill()
        if hasattr(self, "watch"):
            self.watch.close()
        for relay in getattr(self, "relays", {}).values():
            relay.process.kill()
            relay.process.wait()


def judge(run, stats):
    """What the clients' counts say of the run."""
    wrong = sum(each["wrong_blocks"] for each in stats)
    if run.options.canary:
        run.failures = [] if wrong else ["clients that don't verify saw no wrong byte: this run finds nothing"]
        return
    for each in stats:
        for line in each["wrong"]:
            run.fail("wrong bytes: " + line)
        for line in each["overran"]:
            run.fail("beyond its bound: " + line)
    totals = collections.Counter()
    for each in stats:
        totals.update(each["counts"])
    if totals["puts that differ"]:
        run.fail(f"{totals['puts that differ']} puts were told that the node has other bytes")
    hits = sum(number for name, number in totals.items() if name.startswith("hit "))
    if not run.failures and hits < 100:
        run.fail(f"only {hits} hits: a run that does nothing proves nothing")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="of load and faults")
    parser.add_argument("--seed", type=int, help="default: drawn")
    parser.add_argument("--nodes", type=int, default=4, choices=(3, 4, 5))
    parser.add_argument("--replicas", type=int, default=2, choices=(1, 2, 3))
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--deadline-ms", type=int, default=1000, help="calls have a fifth of it, it, or four times it")
    parser.add_argument("--figures", action="store_true", help="one fault at a time, and what each costs")
    parser.add_argument("--canary", action="store_true", help="clients that don't verify must be caught")
    parser.add_argument("--relays", action="store_true", help="relays also where there are network namespaces")
    parser.add_argument("--plan", action="store_true", help="print what would be injected, and end")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1, 1_000_000)
        sys.argv += ["--seed", str(options.seed)]
    return options


def play(run):
    try:
        run.begin()
        run.torment()
        run.say("the faults are over")
        if not run.failed.is_set():
            run.recover()
        stats, epochs = run.end()
        judge(run, stats)
        figures.table(run, stats)
        figures.figures(run, epochs)
    except (Hang, RuntimeError, OSError, subprocess.SubprocessError) as error:
        run.fail(str(error) or repr(error))
    finally:
        run.kill_all()


def main():
    options = arguments()
    if options.plan:
        names = [f"n{number}" for number in range(1, options.nodes + 1)]
        for fault in faults.plan(options.seed, options.seconds, names, names[-1:]):
            print(f"{fault.at:6.1f}  {fault}")
        return 0
    if not shutil.which("etcd"):
        print("etcd is not installed: ./deploy/install-packages", file=sys.stderr)
        return 2
    net = network.Relays if options.relays or not network.enter() else network.Namespaces
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # process 1 ignores it otherwise
    command = "tests/chaos/cluster.py " + " ".join(sys.argv[1:])
    print(command, flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-chaos-"))
    run = Run(options, net, folder)
    try:
        play(run)
    except KeyboardInterrupt:
        run.failures.append("interrupted")
    if not run.failures:
        shutil.rmtree(folder, ignore_errors=True)
        print("\nAll good: seed", options.seed)
        return 0
    print(f"\nNot good. Logs: {folder}. The same faults again: {command}")
    for failure in run.failures[:20]:
        print("  " + failure)
    return 1


if __name__ == "__main__":
    sys.exit(main())
