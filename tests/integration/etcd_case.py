"""A real etcd, nodes that know each other through it, and files in them: what the cluster tests begin with."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from daemon import CLEAN_ENV, Node, run, until  # noqa: E402
from free_port import free_port  # noqa: E402


class Etcd:
    def __init__(self, folder):
        self.folder = folder
        self.client, self.peer = free_port(), free_port()
        self.address = f"127.0.0.1:{self.client}"
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.peer}"
        with open(self.folder / "etcd.log", "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", "http://" + self.address,
                 "--advertise-client-urls", "http://" + self.address, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer],
                stdout=log, stderr=log, env=CLEAN_ENV)
        until(self.healthy, "etcd")

    def healthy(self):
        done = run("etcdctl", "--endpoints", self.address, "endpoint", "health", env={"ETCDCTL_API": "3"})
        return done.returncode == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


class EtcdCase(unittest.TestCase):
    """With a real etcd of its own, and nodes that know each other through it."""

    def setUp(self):
        for program in ("etcd", "etcdctl"):
            self.assertIsNotNone(shutil.which(program), program + " is not installed: ./deploy/install-packages")
        folder = tempfile.TemporaryDirectory(prefix="larder-cluster-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.etcd = Etcd(self.folder)
        self.addCleanup(self.etcd.kill)

    def node(self, name, *flags):
        started = Node(self.folder, "--membership", "etcd", "--etcd-endpoints", self.etcd.address, "--lease", "1s",
                       "--state-dir", str(self.folder / ("state-" + name)), *flags, name=name)
        self.addCleanup(self.end, started)
        return started

    @staticmethod
    def end(node):
        if node.process.poll() is None:
            node.process.kill()
        node.process.wait()

    @staticmethod
    def health(node):
        return json.loads(node.http("/healthz")[1])

    def sees(self, node, nodes):
        return until(lambda: self.health(node)["table_nodes"] == nodes, f"a table of {nodes}")

    def same_table(self, *nodes):
        until(lambda: len({self.health(node)["table_epoch"] for node in nodes}) == 1, "one version")

    def three_with_files(self, *flags, credentials=False, files=12):
        """Nodes a, b, c, and files of one to two MiB that are spread over them."""
        if credentials:
            path = self.folder / "credentials.toml"
            path.write_text("[[credentials]]\nname = 'one'\ntoken = '0123456789abcdef'\n"
                            "[[credentials]]\nname = 'two'\ntoken = 'fedcba9876543210'\ntenant = 't'\n")
            flags += ("--credentials", str(path))
        nodes = self.nodes_with_one_table("a", "b", "c", flags=flags)
        self.put_files(nodes[0], credentials, files)
        return nodes

    def nodes_with_one_table(self, *names, flags=()):
        nodes = [self.node(name, "--node-id", name, *flags) for name in names]
        for node in nodes:
            self.sees(node, len(nodes))
        self.same_table(*nodes)
        return nodes

    def put_files(self, node, credentials=False, files=12):
        self.files = {}
        for number in range(files):
            how = ("--tenant", "t", "--salt", f"secret {number % 2}")
            if credentials:
                how += ("--token", ("0123456789abcdef", "fedcba9876543210")[number % 2])
            content = os.urandom(1_500_000)
            put = node.ctl("put", "-", "--name", f"file {number}", *how, stdin=content)
            self.assertEqual(put.returncode, 0, put.stderr)
            self.files[f"file {number}"] = (content, how)

    def missing(self, node):
        """Files that the cluster has not got any more. What it has must be right."""
        missing = []
        for name, (content, how) in self.files.items():
            got = node.ctl("get", name, *how)
            if got.returncode == 0:
                self.assertEqual(got.stdout, content)
            else:
                missing.append(name)
        return missing
