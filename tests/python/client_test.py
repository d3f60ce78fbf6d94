#!/usr/bin/env python3
"""larder_kv against a real node: every call, every kind of memory, asyncio, forks, bad input, types."""
import array
import asyncio
import gc
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np

import larder_kv
from larder_kv import Extents, Outcome, Presence, PutState
from node_case import IDENTITY, PATIENCE_S, Node, NodeCase, blocks, chain, run_python


class Blocking(NodeCase):
    def test_puts_matches_gets_and_waits(self):
        space = self.space()
        hashes, source = chain(6), blocks(6)
        self.assertEqual(set(space.put(hashes, source).states), {PutState.STORED})
        again = space.put(hashes, source)
        self.assertEqual((set(again.states), again.there, again.copies), ({PutState.EXISTS}, 6, [1] * 6))
        longer = chain(7)
        match = space.match(longer)
        self.assertEqual((len(match), match.usable), (7, 6))
        self.assertEqual(list(match.presence), [Presence.RAM] * 6 + [Presence.NEVER_STORED])
        self.assertEqual(match.bitmaps, [bytes([0b0111111])])
        self.assertEqual(len(match.estimates_us), 7)
        target = np.zeros((7, 16384), np.uint8)
        got = space.get(longer, target)
        self.assertEqual((got.hits, got.leading, len(got)), (6, 6, 7))
        self.assertEqual(list(got.outcomes), [Outcome.HIT] * 6 + [Outcome.MISS])
        self.assertEqual(Presence(got.reasons[6]), Presence.NEVER_STORED)
        self.assertEqual(got.sizes, [16384] * 6 + [0])
        self.assertTrue(all(made > 0 for made in got.created_ms[:6]))
        self.assertEqual(len(got.writers), 7 * 32)
        self.assertTrue((target[:6] == source).all())
        self.assertEqual(space.wait(hashes), 6)
        self.assertEqual(space.wait(longer, deadline_ms=1000), 6)
        self.assertEqual(space.prefetch(longer), 6)
        self.assertEqual(space.client.stats()["prefetches"], 1)

    def test_one_buffer_of_hashes_is_as_good_as_a_list(self):
        space = self.space()
        hashes = chain(4)
        packed = np.frombuffer(b"".join(hashes), np.uint8).reshape(4, 32)
        space.put(packed, blocks(4))
        self.assertEqual(space.match(b"".join(hashes)).usable, 4)
        self.assertEqual(space.match(bytearray(b"".join(hashes))).usable, 4)
        self.assertEqual(space.match([memoryview(each) for each in hashes]).usable, 4)

    def test_groups_and_windows(self):
        space = self.space()
        hashes, source = chain(4), blocks(4)
        space.put(hashes, source, groups=0)
        space.put(hashes[3:], source[3:], groups=[2])
        match = space.match(hashes, groups=[0, (2, 1)])
        self.assertEqual(match.usable, 4)
        self.assertEqual(match.bitmaps, [bytes([15]), bytes([8])])
        self.assertEqual(space.match(hashes, groups=[0, 2]).usable, 0)
        target = np.zeros((2, 16384), np.uint8)
        self.assertEqual(space.get([hashes[3]] * 2, target, groups=[0, 2]).hits, 2)
        self.assertTrue((target == source[3]).all())

    def test_rectangles_and_parts(self):
        space = self.space()
        self.assertEqual((space.layers, space.head_groups, len(space.id)), (2, 2, 32))
        hashes, source = chain(1), blocks(1, 4000)
        half = (0, 2, 1, 2)
        self.assertEqual(space.put(hashes, source, rectangles=half, parts=[(1, 1000), (1, 3000)]).there, 1)
        self.assertEqual(space.match(hashes).presence[0], Presence.UNCOVERED)
        self.assertEqual(space.match(hashes, rectangle=half).usable, 1)
        second = np.zeros(3000, np.uint8)
        self.assertEqual(space.get(hashes, [second], rectangles=[(1, 2, 1, 2)]).hits, 1)
        self.assertTrue((second == source[0, 1000:]).all())

    def test_keys_are_touched_reported_removed_and_cleared(self):
        space = self.space()
        hashes, source = chain(4), blocks(4)
        space.put(hashes, source, constituents=chain(8, 2), first_depth=3)
        space.touch(hashes, usable=4, retention=larder_kv.Retention.CONTINUES)
        space.finish_turn(hashes, larder_kv.Retention.ENDED)
        with self.assertRaises(larder_kv.InvalidError):
            space.finish_turn(hashes, 9)
        space.report(hashes)
        self.assertEqual(space.remove(hashes[3:]), 1)
        self.assertEqual(space.match(hashes).presence[3], Presence.REMOVED)
        self.assertEqual(space.clear(), 3)
        self.assertEqual(space.match(hashes).presence[0], Presence.CLEARED)

    def test_stats_ping_pins_and_namespaces(self):
        client = self.client()
        space = client.namespace({**IDENTITY, "model": "pins"}, tenant="t", salt="secret")
        other = client.namespace({**IDENTITY, "model": "pins"}, tenant="t")
        self.assertNotEqual(space.id, other.id)
        self.assertEqual(client.namespace("kind=kv,layers=2,kv_heads=2,head_groups=2,hash=sha256,model=pins", "t").id,
                         other.id)
        hashes = chain(2)
        space.put(hashes, blocks(2))
        pinned = space.match(hashes, pin_ms=60000)
        self.assertNotEqual(pinned.pin, 0)
        client.release(pinned.pin)
        self.assertEqual(other.match(hashes).usable, 0)
        stats = client.stats()
        self.assertEqual((stats["stored"], stats["nodes"], stats["matches"]), (2, 1, 2))
        self.assertGreater(client.ping(), 0)

    def test_threads_share_a_client(self):
        space = self.space()
        hashes, source = chain(16), blocks(16)
        space.put(hashes, source)
        wrong = []

        def work(first):
            for turn in range(20):
                at = (first + turn) % 12
                target = np.zeros((4, 16384), np.uint8)
                if space.get(hashes[at:at + 4], target).hits != 4 or not (target == source[at:at + 4]).all():
                    wrong.append(at)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(wrong, [])

    def test_the_gil_is_free_while_a_call_waits(self):
        space = self.space()
        hashes = chain(1, 77)
        counted = []
        waiter = threading.Thread(target=lambda: counted.append(space.wait(hashes, deadline_ms=PATIENCE_S * 1000)))
        waiter.start()
        while space.client.stats()["waits"] == 0:  # this thread runs on
            time.sleep(0.001)
        self.assertEqual(space.put(hashes, blocks(1)).there, 1)
        waiter.join(PATIENCE_S)
        self.assertEqual(counted, [1])


class Memory(NodeCase):
    def check(self, space, hashes, target, read):
        self.assertEqual(space.get(hashes, target).hits, len(hashes))
        self.assertEqual(read(), blocks(2, 4096).tobytes())

    def test_anything_with_the_buffer_protocol(self):
        space = self.space()
        hashes, source = chain(2), blocks(2, 4096)
        space.put(hashes, [source[0].tobytes(), memoryview(source[1])])
        target = [bytearray(4096), array.array("I", bytes(4096))]
        self.check(space, hashes, target, lambda: b"".join(bytes(memoryview(each).cast("B")) for each in target))
        halves = [np.zeros(1024, np.uint16), np.zeros(512, np.float32)]
        self.assertEqual(space.get(hashes[:1], [halves]).hits, 1)
        self.assertEqual(b"".join(half.tobytes() for half in halves), source[0].tobytes())

    def test_extents_by_address(self):
        space = self.space()
        hashes, source = chain(2), blocks(2, 4096)
        space.put(hashes, source)
        target = np.zeros((2, 4096), np.uint8)
        base = target.ctypes.data
        for addresses, sizes in (([base, base + 4096], 4096),
                                 (np.array([[base, base + 1000], [base + 4096, base + 5096]], np.uint64), [1000, 3096]),
                                 ([[base, base + 1000], [base + 4096, base + 5096]],
                                  np.array([[1000, 3096], [1000, 3096]], np.int64))):
            extents = Extents.at(addresses, sizes)
            self.assertEqual((len(extents), extents.nbytes), (2, 8192))
            target[:] = 0
            self.check(space, hashes, extents, target.tobytes)
        for addresses, sizes in (([base], [1, 2]), ([[1, 2], [3]], 1), (np.zeros(2), 1), (np.zeros((1, 1, 1), int), 1)):
            with self.assertRaises(larder_kv.InvalidError):
                Extents.at(addresses, sizes)

    def test_library_buffers(self):
        space = self.space(transport="auto")
        hashes, source = chain(2), blocks(2, 4096)
        buffer = space.client.allocate(16384)
        self.assertEqual((len(buffer), buffer.address % 4096), (16384, 0))
        seen = np.frombuffer(buffer, np.uint8)
        seen[:8192] = source.reshape(-1)
        space.put(hashes, [seen[:4096], seen[4096:8192]])
        seen[:] = 0
        self.check(space, hashes, [seen[8192:12288], seen[12288:]], lambda: seen[8192:].tobytes())
        del buffer
        gc.collect()
        self.assertEqual(seen[8192:].tobytes(), source.tobytes())  # the array keeps it
        space.client.register(source.ctypes.data, source.nbytes)
        space.client.unregister(source.ctypes.data)

    def test_tensors(self):
        """torch is not installed for this; its interface is all that is used."""
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not in this environment; test_what_looks_like_a_tensor has its interface")
        space = self.space()
        source = torch.arange(4096, dtype=torch.bfloat16)
        space.put(chain(1), [source])
        target = torch.zeros_like(source)
        self.assertEqual(space.get(chain(1), [target]).hits, 1)
        self.assertTrue(torch.equal(source, target))

    def test_what_looks_like_a_tensor(self):
        class Device:
            type = "cpu"

        class Tensor:
            device = Device()

            def __init__(self, content):
                self.content = content
                self.nbytes = content.nbytes

            def data_ptr(self):
                return self.content.ctypes.data

            def is_contiguous(self):
                return self.content.flags.c_contiguous

        space = self.space()
        hashes, source = chain(2), blocks(2, 4096)
        self.assertEqual(space.put(hashes, [Tensor(each) for each in source]).there, 2)
        target = np.zeros((2, 4096), np.uint8)
        self.check(space, hashes, [Tensor(each) for each in target], target.tobytes)
        with self.assertRaisesRegex(larder_kv.InvalidError, "not contiguous"):
            space.get(hashes[:1], [Tensor(target[:, ::2])])
        Tensor.device.type = "cuda"
        with self.assertRaisesRegex(larder_kv.InvalidError, "cuda"):
            space.get(hashes, [Tensor(each) for each in target])

    def test_memory_that_does_not_fit_is_refused(self):
        space = self.space()
        hashes = chain(2)
        for into, error in (([bytes(16)] * 2, BufferError), ([bytearray(16)], larder_kv.InvalidError),
                            ([object()] * 2, larder_kv.InvalidError), (np.zeros((2, 8))[:, ::2], (ValueError, BufferError)),
                            (Extents.of([b"abc"] * 2, writable=False), larder_kv.InvalidError), (7, TypeError)):
            with self.assertRaises(error):
                space.get(hashes, into)
        for bad in (b"short", [b"short"], [1], 5):
            with self.assertRaises((larder_kv.InvalidError, TypeError)):
                space.match(bad)
        with self.assertRaises(larder_kv.InvalidError):
            space.match(bytes(32 * 70000))

    def test_a_block_of_another_size_is_refused_alone(self):
        space = self.space()
        hashes = chain(3)
        space.put(hashes, blocks(3, 4096))
        target = [bytearray(4096), bytearray(1000), bytearray(4096)]
        self.assertEqual(list(space.get(hashes, target).outcomes), [Outcome.HIT, Outcome.REFUSED, Outcome.HIT])


class Asynchronous(NodeCase):
    def test_asyncio_runs_operations_side_by_side(self):
        space = self.space()
        hashes, source = chain(8), blocks(8)
        target = np.zeros_like(source)

        async def main():
            waiting = asyncio.create_task(space.wait_async(hashes))
            put = await space.put_async(hashes, source)
            self.assertEqual(await space.prefetch_async(hashes), 8)
            got = await asyncio.gather(*[space.get_async(hashes[at:at + 2], target[at:at + 2]) for at in (0, 2, 4, 6)])
            match = await space.match_async(hashes)
            return put.there, [each.hits for each in got], match.usable, await waiting

        self.assertEqual(asyncio.run(main()), (8, [2] * 4, 8, 8))
        self.assertTrue((target == source).all())
        self.assertEqual(asyncio.run(main())[2], 8)  # another loop, the same client

    def test_a_cancelled_task_gets_its_memory_back(self):
        space = self.space()
        hashes = chain(1, 99)

        async def main():
            task = asyncio.create_task(space.wait_async(hashes, deadline_ms=PATIENCE_S * 1000))
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return space.client.stats()["operations"]

        self.assertEqual(asyncio.run(main()), 0)

    def test_a_queue_is_polled(self):
        space = self.space()
        queue = space.client.queue()
        hashes, source = chain(4), blocks(4)
        target = np.zeros_like(source)
        self.assertEqual(queue.poll(), [])
        space.submit_put(queue, "put", hashes, source)
        self.assertEqual(select.select([queue.fileno()], [], [], PATIENCE_S)[0], [queue.fileno()])
        done = queue.poll()
        self.assertEqual([(each.token, each.code, each.result.there) for each in done], [("put", 0, 4)])
        operation = space.submit_get(queue, {"any": "object"}, hashes, target)
        space.submit_match(queue, 1, hashes)
        self.assertEqual(len(queue), 2)
        done = []
        while len(done) < 2:
            done += queue.poll(timeout_ms=PATIENCE_S * 1000)
        by_operation = {each.operation: each for each in done}
        self.assertEqual(by_operation.pop(operation).result.hits, 4)
        self.assertEqual(by_operation.popitem()[1].result.usable, 4)
        self.assertTrue((target == source).all())
        for waiting_only in (False, True):
            operation = space.submit_wait(queue, None, chain(1, 98), deadline_ms=100 if waiting_only else 600000)
            space.client.cancel(operation, waiting_only=waiting_only)
            done = queue.poll(timeout_ms=PATIENCE_S * 1000)
            self.assertEqual([each.result for each in done], [0])

    def test_memory_is_kept_until_its_completion_is_polled(self):
        space = self.space()
        queue = space.client.queue()
        hashes = chain(1)
        space.put(hashes, blocks(1))
        target = np.zeros((1, 16384), np.uint8)
        gone = weakref.ref(target)
        space.submit_get(queue, None, hashes, target)
        del target
        gc.collect()
        self.assertIsNotNone(gone())
        self.assertEqual(queue.poll(timeout_ms=PATIENCE_S * 1000)[0].result.hits, 1)
        gc.collect()
        self.assertIsNone(gone())

    def test_queues_and_tokens_that_refer_to_each_other_are_collected(self):
        space = self.space()

        class Owner:
            pass

        owner = Owner()
        owner.queue = space.client.queue()
        operation = space.submit_wait(owner.queue, owner, chain(1, 97),
                                      deadline_ms=600000)
        space.client.cancel(operation)
        owner.done = owner.queue.poll(timeout_ms=PATIENCE_S * 1000)
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        self.assertIsNone(gone())


class Life(NodeCase):
    def test_a_closed_client_says_so(self):
        client = self.client()
        space = client.namespace(IDENTITY)
        queue = client.queue()
        with client:
            self.assertFalse(client.closed)
        self.assertTrue(client.closed)
        for call in (client.stats, client.queue, lambda: space.match(chain(1)), lambda: client.namespace(IDENTITY),
                     lambda: space.submit_match(queue, None, chain(1))):
            with self.assertRaisesRegex(larder_kv.InvalidError, "closed"):
                call()
        client.close()
        self.assertEqual(queue.poll(), [])

    def test_closing_ends_what_is_under_way(self):
        space = self.space()
        queue = space.client.queue()
        target = np.zeros((1, 64), np.uint8)
        space.submit_wait(queue, None, chain(1, 96), deadline_ms=600000)
        space.submit_get(queue, None, chain(1, 96), target)
        del queue
        space.client.close()

    def test_a_dead_node_is_misses_and_not_stored(self):
        node = Node()
        client = larder_kv.Client(node.address, environment=False, deadline_ms=2000)
        self.addCleanup(client.close)
        space = client.namespace(IDENTITY)
        hashes, source = chain(2), blocks(2)
        space.put(hashes, source)
        node.end()
        target = np.zeros_like(source)
        self.assertEqual(space.get(hashes, target).hits, 0)
        self.assertEqual(Presence(space.get(hashes, target).reasons[0]), Presence.UNREACHABLE)
        put = space.put(hashes, source)
        self.assertEqual(put.there, 0)
        self.assertNotEqual(put.why, "")
        with self.assertRaises(larder_kv.Error):
            space.clear()

    def test_errors_have_types_and_say_what_to_do(self):
        with self.assertRaisesRegex(larder_kv.InvalidError, "endpoints"):
            larder_kv.Client(environment=False)
        with self.assertRaises(larder_kv.Error) as caught:
            larder_kv.Client("127.0.0.1:1", environment=False, open_deadline_ms=200)
        self.assertIn(caught.exception.code, (larder_kv.Code.TIMED_OUT, larder_kv.Code.UNAVAILABLE))
        with self.assertRaisesRegex(larder_kv.InvalidError, "pigeon"):
            self.client(transport="pigeon")
        with self.assertRaises(ValueError):
            self.client(fork="both")
        with self.assertRaisesRegex(larder_kv.InvalidError, "kind"):
            self.client().namespace({"kind": "fish"})

    def test_options_come_from_file_and_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "client.toml"
            path.write_text(f'endpoints = ["{self.node.address}"]\ntransport = "tcp"\n')
            self.assertGreater(larder_kv.Client(config_file=path, environment=False).ping(), 0)
            path.write_text("endpoint = 1")
            with self.assertRaisesRegex(larder_kv.InvalidError, "endpoint"):
                larder_kv.Client(config_file=path, environment=False)
        code = "import larder_kv; print(larder_kv.Client().stats()['nodes'])"
        self.assertEqual(run_python(code, LARDER_ENDPOINTS=self.node.address).strip(), "1")

    def test_forked_children(self):
        for mode in ("error", "reopen"):
            space = self.space(fork=mode, transport="tcp")
            hashes, source = chain(2), blocks(2)
            space.put(hashes, source)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    target = np.zeros_like(source)
                    try:
                        good = space.get(hashes, target).hits == 2 and (target == source).all()
                        code = 0 if good and mode == "reopen" else 2
                    except larder_kv.ForkedError:
                        code = 0 if mode == "error" else 3
                    space.client.close()
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual(space.match(hashes).usable, 2)  # the parent's goes on


class Package(unittest.TestCase):
    CODE = """
import larder_kv, sys
client = larder_kv.Client(sys.argv[1] if len(sys.argv) > 1 else None, open_deadline_ms=20000)
space = client.namespace("kind=opaque,model=neighbours")
hash = larder_kv.hash_link(None, b"x")
space.put([hash], [b"content"])
into = bytearray(7)
assert space.get([hash], [into]).hits == 1 and into == b"content"
"""

    def with_node(self, code):
        node = Node()
        self.addCleanup(node.end)
        run_python(code, LARDER_ENDPOINTS=node.address)

    def test_lives_beside_grpc(self):
        self.with_node("import grpc\nserver = grpc.server(__import__('concurrent.futures').futures.ThreadPoolExecutor(1))\n"
                       "server.add_insecure_port('127.0.0.1:0')\nserver.start()\n" + self.CODE + "server.stop(0)\n")

    def test_lives_beside_torch_and_grpc(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not in this environment: 2 GB that only this would use")
        self.with_node("import torch\nimport grpc\n" + self.CODE + "print(torch.ones(2).sum())\n")

    def test_nothing_is_leaked_at_exit(self):
        node = Node()
        self.addCleanup(node.end)
        done = subprocess.run([sys.executable, "-c", self.CODE, node.address], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True)
        self.assertEqual(done.stderr, "")

    def test_hashes(self):
        tokens = list(range(10))
        hashes = larder_kv.hash_tokens(tokens, 4)
        self.assertEqual(len(hashes), 64)
        self.assertEqual(larder_kv.hash_tokens(tokens[:4], 4), hashes[:32])
        self.assertEqual(larder_kv.hash_tokens(np.arange(10), 4), hashes)
        with self.assertRaises(larder_kv.InvalidError):
            larder_kv.hash_tokens(tokens, 0)
        with self.assertRaises(larder_kv.InvalidError):
            larder_kv.hash_link(b"short", b"")

    def test_types_are_complete(self):
        sample = """
import asyncio
import larder_kv
client = larder_kv.Client("127.0.0.1:7400", fork="reopen")
space: larder_kv.Namespace = client.namespace({"kind": "kv", "layers": 2})
usable: int = space.match([bytes(32)], groups=[0, (1, 4)]).usable
hits: int = space.get(bytes(64), [bytearray(4), bytearray(4)], rectangles=(0, 1, 0, 1)).hits
there: int = asyncio.run(space.put_async([bytes(32)], larder_kv.Extents.at([1], 4))).there
"""
        package = pathlib.Path(larder_kv.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "sample.py"
            path.write_text(sample)
            for argv in ([str(path)], ["-p", "larder_kv"]):
                done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{folder}/cache", *argv],
                                      capture_output=True, text=True, timeout=300, check=False, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            path.write_text(sample.replace("usable: int", "usable: str"))
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{folder}/cache", str(path)],
                                  capture_output=True, text=True, timeout=300, check=False, cwd=folder)
            self.assertNotEqual(done.returncode, 0)

    def test_everything_public_has_a_docstring(self):
        for name in larder_kv.__all__:
            item = getattr(larder_kv, name)
            if name.startswith("__") or item.__module__ == "larder_kv._native":
                continue  # the stubs have theirs
            self.assertTrue(item.__doc__, name)
            for member, value in vars(item).items() if isinstance(item, type) else ():
                if not member.startswith("_") and callable(value) and member not in ("unregister",):
                    self.assertTrue(value.__doc__, f"{name}.{member}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
