#!/usr/bin/env python3
"""larder_kv.mooncake beside the real thing: the same calls in the same order, on a Larder node and on mooncake_master.

What the real store (mooncake-transfer-engine-non-cuda 0.3.13.post1) answered stands in STEPS, so that the comparison holds
where it can't be installed; where it can, it is asked again.
"""
import inspect
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest

import numpy as np

import larder_kv.mooncake as ours
from node_case import CLEAN_ENV, PATIENCE_S, NodeCase

NOT_FOUND, BAD = -704, -600


class Scene:
    """A store and registered memory; steps refer to it by offsets."""

    def __init__(self, store):
        self.store = store
        self.memory = (np.arange(1 << 20, dtype=np.uint64) % 251).astype(np.uint8)
        self.base = self.memory.ctypes.data

    def landed(self, offset, size, source):
        return self.memory[offset:offset + size].tobytes() == self.memory[source:source + size].tobytes()


# (what, call, answer of the real store). A step that answers otherwise on purpose has a fourth: ours, and why.
STEPS = [
    ("register", lambda s: s.store.register_buffer(s.base, 1 << 20), 0),
    ("register twice", lambda s: s.store.register_buffer(s.base, 1 << 20), BAD),
    ("health", lambda s: s.store.health_check(), 0),
    ("is_exist of nothing", lambda s: s.store.is_exist("a"), 0),
    ("get of nothing", lambda s: s.store.get("a"), b""),
    ("get_size of nothing", lambda s: s.store.get_size("a"), NOT_FOUND),
    ("get_buffer of nothing", lambda s: s.store.get_buffer("a"), None),
    ("remove of nothing", lambda s: s.store.remove("a"), NOT_FOUND),
    ("put", lambda s: s.store.put("a", b"hello"), 0),
    ("put again", lambda s: s.store.put("a", b"hello"), 0),
    ("put another value", lambda s: s.store.put("a", b"other!"), 0),
    ("the first value stays", lambda s: s.store.get("a"), b"hello"),
    ("get_size", lambda s: s.store.get_size("a"), 5),
    ("is_exist", lambda s: s.store.is_exist("a"), 1),
    ("get_buffer", lambda s: s.store.get_buffer("a").size(), 5),
    ("put of no bytes", lambda s: s.store.put("e", b""), BAD),
    ("put without a key", lambda s: s.store.put("", b"x"), BAD),
    ("put_batch", lambda s: s.store.put_batch(["b1", "b2"], [b"1", b"22"]), 0),
    ("put_batch with one more", lambda s: s.store.put_batch(["b1", "b2", "b3"], [b"1", b"22", b"333"]), 0),
    ("put_batch of different lengths", lambda s: s.store.put_batch(["b4"], [b"1", b"22"]), BAD),
    ("get_batch", lambda s: s.store.get_batch(["b1", "nope", "b2"]), [b"1", b"", b"22"]),
    ("batch_is_exist", lambda s: s.store.batch_is_exist(["a", "nope", "b1"]), [1, 0, 1]),
    ("batch_is_exist of nothing", lambda s: s.store.batch_is_exist([]), []),
    ("put_parts", lambda s: s.store.put_parts("pp", b"ab", b"cd"), 0),
    ("get of parts", lambda s: s.store.get("pp"), b"abcd"),
    ("put of an array", lambda s: s.store.put("np", np.arange(3, dtype=np.uint8)), 0),
    ("get of an array", lambda s: s.store.get("np"), b"\0\1\2"),
    ("a name in other letters", lambda s: (s.store.put("schön", b"1"), s.store.get("schön")), (0, b"1")),
    ("a long name", lambda s: s.store.put("k" * 5000, b"1"), 0),
    ("put_from", lambda s: s.store.put_from("p", s.base, 1000), 0),
    ("put_from again", lambda s: s.store.put_from("p", s.base, 1000), 0),
    ("put_from of no bytes", lambda s: s.store.put_from("p0", s.base, 0), 0),
    ("it is not there", lambda s: (s.store.is_exist("p0"), s.store.get_into("p0", s.base, 10)), (0, NOT_FOUND)),
    ("batch_put_from", lambda s: s.store.batch_put_from(["q1", "q2", "p"], [s.base, s.base + 1000, s.base],
                                                        [1000, 2000, 1000]), [0, 0, 0]),
    ("batch_put_from of different lengths", lambda s: s.store.batch_put_from(["q1", "q2"], [s.base], [1000]), [BAD] * 2),
    ("get_into", lambda s: (s.store.get_into("p", s.base + 500000, 1000), s.landed(500000, 1000, 0)), (1000, True)),
    ("get_into larger memory", lambda s: s.store.get_into("p", s.base + 500000, 2000), 1000),
    ("get_into smaller memory", lambda s: s.store.get_into("p", s.base + 500000, 500), BAD),
    ("get_into of nothing", lambda s: s.store.get_into("nope", s.base + 500000, 500), NOT_FOUND),
    ("batch_get_into", lambda s: s.store.batch_get_into(
        ["q1", "nope", "q2", "p", "p"], [s.base + 500000 + 10000 * i for i in range(5)], [1000, 1000, 2000, 4000, 10]),
     [1000, NOT_FOUND, 2000, 1000, BAD]),
    ("its bytes", lambda s: (s.landed(500000, 1000, 0), s.landed(520000, 2000, 1000), s.landed(530000, 1000, 0)),
     (True, True, True)),
    ("batch_get_into of different lengths", lambda s: s.store.batch_get_into(["q1", "q2"], [s.base], [1000]), [BAD] * 2),
    ("multi buffers", lambda s: s.store.batch_put_from_multi_buffers(
        ["m1", "m2"], [[s.base, s.base + 5000], [s.base + 100]], [[100, 200], [300]]), [0, 0]),
    ("multi buffers again", lambda s: s.store.batch_put_from_multi_buffers(
        ["m1"], [[s.base, s.base + 5000]], [[100, 200]]), [0]),
    ("multi buffers without memory", lambda s: s.store.batch_put_from_multi_buffers(["z"], [[]], [[]]), [BAD]),
    ("multi buffers of different lengths", lambda s: s.store.batch_put_from_multi_buffers(
        ["z", "y"], [[s.base]], [[1]]), [BAD] * 2),
    ("multi buffers of different sizes", lambda s: s.store.batch_put_from_multi_buffers(["z"], [[s.base]], [[1, 2]]), [BAD]),
    ("their size", lambda s: s.store.get_size("m1"), 300),
    ("get multi buffers", lambda s: s.store.batch_get_into_multi_buffers(
        ["m1", "nope"], [[s.base + 600000, s.base + 610000], [s.base + 620000]], [[150, 150], [300]]), [300, NOT_FOUND]),
    ("their bytes", lambda s: (s.landed(600000, 100, 0), s.landed(600100, 50, 5000), s.landed(610000, 150, 5050)),
     (True, True, True)),
    ("get multi buffers, too small", lambda s: s.store.batch_get_into_multi_buffers(
        ["m1"], [[s.base + 600000, s.base + 610000]], [[100, 100]]), [BAD]),
    ("get multi buffers, too large", lambda s: s.store.batch_get_into_multi_buffers(
        ["m1"], [[s.base + 600000, s.base + 610000]], [[200, 200]]), [-800]),
    ("remove right after a read", lambda s: s.store.remove("a"), -706, (0, "there are no leases")),
    ("remove", lambda s: s.store.remove("b3", True), 0),
    ("remove again", lambda s: s.store.remove("b3", True), NOT_FOUND),
    ("batch_remove", lambda s: s.store.batch_remove(["b1", "nope"], True), [0, NOT_FOUND]),
    ("it is gone", lambda s: (s.store.is_exist("b1"), s.store.get("b1")), (0, b"")),
    ("upsert", lambda s: s.store.upsert("pp", b"new"), 0, (-1011, "values don't change")),
    ("upsert_from", lambda s: s.store.upsert_from("pp", s.base, 3), 0, (-1011, "values don't change")),
    ("remove_by_regex", lambda s: s.store.remove_by_regex("^q.*", True), 2, (-1011, "nodes know no names")),
    ("after remove_all", lambda s: (s.store.remove_all(True) > 0, s.store.batch_is_exist(["p", "m1"])), (True, [0, 0])),
    ("unregister", lambda s: s.store.unregister_buffer(s.base), 0),
    ("unregister twice", lambda s: s.store.unregister_buffer(s.base), BAD),
    ("close", lambda s: s.store.close(), 0),
    ("close twice", lambda s: s.store.close(), 0),
    ("get after close", lambda s: s.store.get("p"), b""),
    ("health after close", lambda s: s.store.health_check(), 1),
]


def free_ports():
    """Two numbers in a row that nobody listens at just now."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue
    raise AssertionError("no two free ports in a row")


class MooncakeNames(NodeCase):
    def setUp(self):
        self.scene = Scene(ours.MooncakeDistributedStore())
        self.addCleanup(self.scene.store.close)
        self.assertEqual(self.setup_store(), 0)

    def setup_store(self, **more):
        return self.scene.store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", self.node.address, **more)

    def test_every_call_answers_as_mooncake_does(self):
        for what, call, real, *other in STEPS:
            wanted = other[0][0] if other else real
            self.assertEqual(call(self.scene), wanted, what)

    def test_setup(self):
        store = ours.MooncakeDistributedStore()
        self.assertEqual((store.health_check(), store.get("a"), store.is_exist("a"), store.put("a", b"1")), (1, b"", -1, -1))
        self.assertEqual(store.batch_get_into(["a"], [self.scene.base], [1]), [-1])
        self.assertEqual(store.setup({}), BAD)
        self.assertEqual(store.setup("h", "m", 0, 0, "tcp", "", ""), BAD)
        self.assertEqual(store.setup({"local_hostname": "h", "metadata_server": "m",
                                      "master_server_addr": self.node.address}), 0)
        self.assertEqual(store.get_hostname(), "h")
        store.close()

    def test_tenants_do_not_meet(self):
        self.scene.store.put("mine", b"1")
        self.assertEqual(self.setup_store(tenant_id="another"), 0)
        self.assertEqual(self.scene.store.is_exist("mine"), 0)

    def test_many_keys_and_buffers_in_one_call(self):
        count, nbytes = 64, 4096
        keys = [f"page-{index}" for index in range(count)]
        source = np.random.default_rng(1).integers(0, 256, (count, nbytes), np.uint8)
        target = np.zeros_like(source)
        halves = [[each.ctypes.data, each.ctypes.data + 1024] for each in source]
        into = [[each.ctypes.data, each.ctypes.data + 3072] for each in target]
        sizes = [[1024, 3072]] * count
        self.assertEqual(self.scene.store.batch_put_from_multi_buffers(keys, halves, sizes), [0] * count)
        self.assertEqual(self.scene.store.batch_get_into_multi_buffers(keys, into, [[3072, 1024]] * count), [nbytes] * count)
        self.assertTrue((target == source).all())
        self.assertEqual(self.scene.store.batch_is_exist(keys), [1] * count)


class MooncakeItself(unittest.TestCase):
    """Needs the wheel and its master; skipped, with the reason, where they don't run."""

    @classmethod
    def setUpClass(cls):
        try:
            import mooncake.store
        except ImportError as error:
            raise unittest.SkipTest(f"the real store can't be imported here: {error}") from error
        cls.real = mooncake.store

    def test_signatures_are_the_same(self):
        for name in vars(ours.MooncakeDistributedStore):
            if name.startswith("_"):
                continue
            text = getattr(self.real.MooncakeDistributedStore, name).__doc__
            match = re.search(rf"\b{name}\(self: [\w.]+,? ?(.*?)\) -> ", text.replace("\n", " "))
            self.assertIsNotNone(match, name)
            real = re.findall(r"(?:^|, )(\*?\w+)(?:: [^,=]*(?:\[[^=]*?\])?)?(?: = [^,]*)?(?=, |$)", match.group(1))
            mine = [str(p).split(":")[0].split(" = ")[0] for p in
                    inspect.signature(getattr(ours.MooncakeDistributedStore, name)).parameters.values()][1:]
            if name == "setup":
                mine.remove("config")  # the second overload's
            for at, parameter in enumerate(real):
                if re.fullmatch(r"arg\d", parameter):
                    continue  # positional in Mooncake: any name will do
                self.assertEqual(mine[at], parameter, f"{name}: {match.group(1)}")
            self.assertEqual(len(mine), len(real), f"{name}: {match.group(1)}")

    def test_the_real_store_still_answers_so(self):
        master = pathlib.Path(self.real.__file__).parent / "mooncake_master"
        port = free_ports()
        launch = [sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])", str(master)]
        os.chmod(master, 0o755)
        process = subprocess.Popen([*launch, f"--rpc_port={port}", f"--metrics_port={port + 1}"], env=CLEAN_ENV,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, PATIENCE_S)
        self.addCleanup(process.kill)
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    self.skipTest("mooncake_master does not start on this machine")
                time.sleep(0.05)
        scene = Scene(self.real.MooncakeDistributedStore())
        self.assertEqual(scene.store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "",
                                           f"127.0.0.1:{port}"), 0)
        for what, call, real, *_ in STEPS:
            self.assertEqual(call(scene), real, what)


if __name__ == "__main__":
    unittest.main(verbosity=2)
