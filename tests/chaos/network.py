"""The network of a chaos run: who has which address, and how two of them are cut from each other.

Namespaces, where the machine lets us have them: each host of the run (a node, the clients, etcd) has a network
namespace of its own, joined to this one by a veth pair; this one routes, and drops what it is told to by policy
rules, so that packets vanish in one direction or both as in a broken switch. Else Relays: addresses of the loopback
interface, a relay before each node, and a cut host's relay stops passing bytes in one direction or both.
"""
import os
import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
ALONE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
AS_ROOT = ["unshare", "--user", "--map-root-user"] + ALONE[1:]
ENTERED = "LARDER_CHAOS_NAMESPACE"


def can(argv):
    """Whether a process that was started so may make namespaces and mount."""
    try:
        return subprocess.run(argv + ["bash", "-c", "mount -t tmpfs none /run && ip netns add x && "
                                      "ip netns exec x true && ip rule add iif lo blackhole"],
                              capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def enter():
    """Begins this program again where nothing outside can be reached and everything ends with it. Returns whether
    it runs there; it doesn't where the machine forbids that."""
    if os.environ.get(ENTERED) == "1":
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        return True
    for argv in (ALONE, AS_ROOT):
        if can(argv):
            os.environ[ENTERED] = "1"
            os.execvp(argv[0], argv + [sys.executable] + sys.argv)
    return False


class Relay:
    """A running relay.py."""

    def __init__(self, prefix, pairs):
        self.process = subprocess.Popen(prefix + [sys.executable, str(HERE / "relay.py"), *pairs],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lock = threading.Lock()
        self.answer()

    def answer(self):
        if self.process.stdout.readline() != "ok\n":
            raise RuntimeError("a relay ended")

    def tell(self, command):
        with self.lock:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            self.answer()


class Namespaces:
    name = "network namespaces; packets are dropped by policy rules of the router between them, in either direction"
    mounts = True

    def __init__(self, hosts):
        self.numbers = {host: number for number, host in enumerate(hosts, 1)}
        self.lock = threading.Lock()
        self.cuts = 0
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self.ip("link set lo up")
        for host, number in self.numbers.items():
            self.ip(f"netns add {host}",
                    f"link add v{number} type veth peer name eth0 netns {host}",
                    f"addr add 10.77.{number}.1/24 dev v{number}",
                    f"link set v{number} mtu 65535 up")
            self.ip("link set lo up", "link set eth0 mtu 65535 up",
                    f"addr add 10.77.{number}.2/24 dev eth0", f"addr add 10.77.{number}.3/24 dev eth0",
                    f"route add default via 10.77.{number}.1", host=host)

    @staticmethod
    def ip(*lines, host=None):
        where = ["-n", host] if host else []
        subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True,
                       capture_output=True)

    def inner(self, host):
        return f"10.77.{self.numbers[host]}.2"

    def outer(self, host):
        return f"10.77.{self.numbers[host]}.3"

    @staticmethod
    def prefix(host):
        return ["ip", "netns", "exec", host]

    def cut(self, host, ways, others):
        """Drops what goes `in` to, `out` of the host, from and to the others. Returns what ends it."""
        pairs = [(other, host) for other in others if "in" in ways]
        pairs += [(host, other) for other in others if "out" in ways]
        with self.lock:
            self.cuts += 1
            rank = 100 + self.cuts % 1000  # rules of two cuts may be alike otherwise
        rules = [f"iif v{self.numbers[source]} to 10.77.{self.numbers[target]}.0/24 pref {rank} blackhole"
                 for source, target in pairs]

        def change(verb):
            with self.lock:
                self.ip(*[f"rule {verb} {rule}" for rule in rules], "route flush cache")
        change("add")
        return lambda: change("del")


class Relays:
    name = ("relays on the loopback interface that stop passing bytes, since this machine gives no network namespaces; "
            "a node is cut from everybody at once")
    mounts = False

    def __init__(self, hosts):
        self.numbers = {host: number for number, host in enumerate(hosts, 1)}
        self.relays = {}  # host -> Relay, filled by whoever starts the nodes

    def inner(self, host):
        return f"127.77.{self.numbers[host]}.2"

    def outer(self, host):
        return f"127.77.{self.numbers[host]}.3"

    @staticmethod
    def prefix(host):
        del host
        return []

    def cut(self, host, ways, others):
        del others
        for way in ways:
            self.relays[host].tell("stop " + way)
        return lambda: self.relays[host].tell("clear")
