"""What happens to the cluster when: all of it drawn from the seed before the run begins."""
import dataclasses
import random
import signal
import subprocess
import time

from processes import CLEAN_ENV, Hang, now_us

# kind -> shortest and longest time that it lasts. A round draws each once, in any order.
KINDS = {
    "kill": (0.3, 4), "kill-empty": (0.3, 4), "kill-rot": (0.3, 2), "stop": (0.5, 6), "cut": (1, 6), "cut-in": (1, 6),
    "cut-out": (1, 6), "drain": (0.2, 2), "restart": (0.2, 2), "slow": (2, 6), "flip": (1, 4), "etcd-kill": (1, 6),
    "etcd-stop": (1, 5), "full-disk": (2, 6),
}
ALONE = ("kill", "stop")  # begin when all else is well, and have a second and a half: what they cost is measured
WELL_AGAIN_S = 2.5        # after a fault, before its node has the next one
MEASURED_S = 1.5
WINDOW_US = 500_000       # gets begun within it count as begun right after a fault


@dataclasses.dataclass
class Fault:
    at: float  # seconds from the beginning of the load
    kind: str
    node: str  # "etcd" when it is etcd's
    seconds: float
    number: int = 0  # kind-specific: milliseconds of delay, seed of flips
    others: tuple = ()  # cuts: from whom
    began_us: int = 0  # of ALONE: the moment itself

    def __str__(self):
        more = {"slow": f" by {self.number} ms each way"}.get(self.kind, "")
        more += f" (from {', '.join(self.others)})" if self.others else ""
        return f"{self.kind} {self.node}{more}, {self.seconds:.1f} s"


def draw(dice, kind, at, node, nodes):
    shortest, longest = KINDS[kind]
    fault = Fault(at, kind, node, dice.uniform(shortest, longest))
    fault.number = dice.randrange(20, 300)
    if kind.startswith("cut"):
        rest = [other for other in nodes if other != node]
        fault.others = dice.choice([(*rest, "clients", "etcd"), (*rest, "etcd"), ("clients",), ("etcd",)])
    return fault


def plan(seed, seconds, nodes, relayed, kinds=tuple(KINDS)):
    """Faults that end before `seconds` are over, at most two at a time."""
    dice = random.Random(seed)
    faults, deck, at = [], [], 1.0
    free_at = {name: 0.0 for name in (*nodes, "etcd")}
    while True:
        if not deck:
            deck = list(kinds)
            dice.shuffle(deck)
        kind = deck.pop()
        at += dice.uniform(0.2, 1.6)
        choice = ["etcd"] if kind.startswith("etcd") else relayed if kind in ("slow", "flip") else nodes
        node = dice.choice(choice)
        ends = sorted(fault.at + fault.seconds for fault in faults)
        at = max(at, free_at[node], ends[-2] if len(ends) > 1 else 0)
        if kind in ALONE:
            at = max([at] + [end + WELL_AGAIN_S for end in ends])
        fault = draw(dice, kind, at, node, nodes)
        if at + fault.seconds > seconds:
            return faults
        faults.append(fault)
        free_at[node] = at + fault.seconds + WELL_AGAIN_S
        if kind in ALONE:
            at += MEASURED_S


def figures_plan(seed, seconds, nodes):
    """One thing at a time, and all well in between."""
    dice = random.Random(seed)
    faults, at = [], 4.0
    while at + 4 < seconds:
        kind = ("kill", "stop", "drain")[len(faults) % 3]
        faults.append(Fault(at, kind, dice.choice(nodes), {"kill": 2, "stop": 4, "drain": 1}[kind]))
        at += 10
    return faults


class Injector:
    """Does to a run what the plan says. Each call returns once all is as before."""

    def __init__(self, run):
        self.run = run

    def apply(self, fault):
        call = getattr(self, "etcd" if fault.node == "etcd" else fault.kind.split("-")[0])
        if fault.node == "etcd":
            return call(fault, self.run.etcd)
        node = self.run.nodes[fault.node]
        with node.one_fault:
            return call(fault, node)

    def kill(self, fault, node):
        fault.began_us = now_us()
        node.kill()
        if fault.kind == "kill-empty":
            self.run.empty(node)
        elif fault.kind == "kill-rot":
            node.rot(fault.number, 400)
        time.sleep(fault.seconds)
        node.start()

    def stop(self, fault, node):
        fault.began_us = now_us()
        node.signal(signal.SIGSTOP)
        time.sleep(fault.seconds)
        node.signal(signal.SIGCONT)

    def cut(self, fault, node):
        ways = {"cut": ("in", "out"), "cut-in": ("in",), "cut-out": ("out",)}[fault.kind]
        heal = self.run.network.cut(node.name, ways, fault.others)
        time.sleep(fault.seconds)
        heal()

    def drain(self, fault, node):
        node.meant_down = True
        try:
            asked = subprocess.run([self.run.programs / "larderctl", "-e", node.inner + ":7400", "drain", node.name],
                                   env=CLEAN_ENV, capture_output=True, timeout=60, check=False)
        except subprocess.TimeoutExpired as error:
            raise Hang(f"larderctl drain {node.name} did not end within 60 s") from error
        if asked.returncode != 0:
            self.run.say(f"drain {node.name}: {asked.stderr.decode().strip()}; SIGTERM instead")
            node.signal(signal.SIGTERM)
        if node.wait() != 0:
            raise RuntimeError(f"{node.name} ended with {node.process.returncode} after its drain")
        time.sleep(fault.seconds)
        node.start()

    def restart(self, fault, node):
        node.stop()
        time.sleep(fault.seconds)
        node.start()

    def slow(self, fault, node):
        self.run.relays[node.name].tell(f"delay {fault.number}")
        time.sleep(fault.seconds)
        self.run.relays[node.name].tell("clear")

    def flip(self, fault, node):
        end = time.monotonic() + fault.seconds
        while time.monotonic() < end:
            self.run.relays[node.name].tell("flip")
            time.sleep(0.1)
        self.run.relays[node.name].tell("clear")

    def full(self, fault, node):
        give_back = node.fill_disk()
        time.sleep(fault.seconds)
        give_back()

    def etcd(self, fault, etcd):
        if fault.kind == "etcd-stop":
            etcd.signal(signal.SIGSTOP)
            time.sleep(fault.seconds)
            etcd.signal(signal.SIGCONT)
            return
        etcd.kill()
        time.sleep(fault.seconds)
        etcd.start()
