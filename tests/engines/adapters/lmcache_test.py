"""larder_kv.lmcache on LMCache's own parts: its plugin loader, memory objects, event fds and its storage manager.

LMCache has no path for vLLM on a CPU, so no engine runs here. Its storage manager does: what one stores to Larder in the background
another prefetches, byte by byte. The rest calls the adapter as its controllers do, with a real larder-node.
"""

import logging
import os
import pathlib
import select
import shutil
import tempfile
import time
import types
import unittest
import unittest.mock

import torch
from engine import MODELS
from lmcache.v1.distributed import config
from lmcache.v1.distributed.api import (
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.internal_api import L2AdapterListener
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig
from lmcache.v1.distributed.l2_adapters.factory import create_l2_adapter_from_registry
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.distributed.storage_manager import StorageManager
from lmcache.v1.memory_management import MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.platform import consume_fd
from logged import logged
from nodes import Node, free_port

from larder_kv.engine.compatibility import lacking_calls
from larder_kv.lmcache import LarderL2Adapter, compatibility, models
from larder_kv.lmcache.locks import Locks

PATIENCE_S = 60
SHAPE = torch.Size((2, 4, 16, 64))


def layout(shape=SHAPE, dtype=torch.bfloat16):
    return MemoryLayoutDesc([shape], [dtype])


def keys(seed, count, model="m", rank=0, group=0, salt=""):
    generator = torch.Generator().manual_seed(seed)
    kv_rank = ObjectKey.ComputeKVRank(2, rank, 2, rank)
    return [
        ObjectKey(bytes(torch.randint(0, 256, (32,), generator=generator).tolist()), model, kv_rank, group, salt)
        for _ in range(count)
    ]


def memory(seed=None, count=1, described=None):
    """LMCache's objects, with random bytes in them or with zeros."""
    described, made = described or layout(), []
    for number in range(count):
        shape, dtype = described.shapes[0], described.dtypes[0]
        raw = torch.zeros(shape.numel() * dtype.itemsize, dtype=torch.uint8)
        if seed is not None:
            generator = torch.Generator().manual_seed(1000 * seed + number)
            raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8, generator=generator))
        about = MemoryObjMetadata(
            shape, dtype, raw.data_ptr(), len(raw), 1, shapes=described.shapes, dtypes=described.dtypes
        )
        made.append(TensorMemoryObj(raw, about, None))
    return made


def bits(bitmap):
    return [bitmap.test(at) for at in range(bitmap.size())]


class AdapterCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("128MiB")
        cls.addClassCleanup(cls.node.end)

    def plugin(self, **params):
        return PluginL2AdapterConfig.from_dict(
            {
                "module_path": "larder_kv.lmcache",
                "class_name": "LarderL2Adapter",
                "adapter_params": {
                    "endpoints": self.node.address,
                    "tenant": self.id(),
                    "weights": {"m": str(MODELS / "tiny")},
                    **params,
                },
            }
        )

    def adapter(self, ready=True, **params):
        """As LMCache makes it."""
        made = create_l2_adapter_from_registry(self.plugin(**params))
        self.addCleanup(made.close)
        if ready:
            self.until_ready(made)
        return made

    def until_ready(self, adapter, model="m"):
        """Weights are read in the background."""
        self.wait_until(lambda: adapter._models.digest(model))

    def wait_until(self, true):
        end = time.monotonic() + PATIENCE_S
        while not true():
            self.assertLess(time.monotonic(), end, "it did not come")
            time.sleep(0.02)

    def lines(self):
        return logged("lmcache.larder_kv")

    # --- as LMCache's controllers do: submit, wait for the event, ask

    def signalled(self, descriptor):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        self.assertTrue(poll.poll(PATIENCE_S * 1000), "no event")
        consume_fd(descriptor)

    def outcome(self, descriptor, query, task):
        while True:
            self.signalled(descriptor)
            if (found := query(task)) is not None:
                self.assertIsNone(query(task))  # once
                return bits(found)

    def store(self, adapter, which, objects):
        task = adapter.submit_store_task(which, objects)
        while True:
            self.signalled(adapter.get_store_event_fd())
            if task in (done := adapter.pop_completed_store_tasks()):
                return done[task]

    def look(self, adapter, which, described=None, unlock=True):
        groups = {each.object_group_id: described or layout() for each in which}
        task = adapter.submit_lookup_and_lock_task(which, groups)
        found = self.outcome(adapter.get_lookup_and_lock_event_fd(), adapter.query_lookup_and_lock_result, task)
        if unlock:
            adapter.submit_unlock([key for key, there in zip(which, found, strict=True) if there])
        return found

    def load(self, adapter, which, objects):
        task = adapter.submit_load_task(which, objects)
        return self.outcome(adapter.get_load_event_fd(), adapter.query_load_result, task)


class Objects(AdapterCase):
    def test_every_byte_comes_back(self):
        writer, reader = self.adapter(), self.adapter()
        which, stored, loaded = keys(1, 6), memory(1, 6), memory(None, 6)
        self.assertEqual(self.look(reader, which), [False] * 6)
        result = self.store(writer, which, stored)
        self.assertTrue(result.is_successful())
        self.assertEqual(result.bytes_transferred(), sum(each.get_size() for each in stored))
        self.assertEqual(self.look(reader, which), [True] * 6)
        self.assertEqual(self.load(reader, which, loaded), [True] * 6)
        for one, other in zip(stored, loaded, strict=True):
            self.assertTrue(torch.equal(one.raw_data, other.raw_data))
        again = self.store(writer, which, stored)
        self.assertEqual((again.is_successful(), again.bytes_transferred()), (True, 0))

    def test_what_is_not_there_is_told_key_by_key(self):
        adapter, which = self.adapter(), keys(2, 5)
        self.store(adapter, [which[0], which[3]], memory(2, 2))
        self.assertEqual(self.look(adapter, which), [True, False, False, True, False])
        self.assertEqual(self.load(adapter, which, memory(None, 5)), [True, False, False, True, False])
        self.assertEqual(self.load(adapter, [], []), [])
        self.assertEqual(self.look(adapter, []), [])

    def test_several_models_and_layouts_in_one_task(self):
        adapter = self.adapter(weights={"m": str(MODELS / "tiny"), "n": str(MODELS / "llama")})
        self.until_ready(adapter, "n")
        other = layout(torch.Size((8, 32)), torch.float32)
        which = keys(3, 2) + keys(4, 2, group=1) + keys(5, 1, model="n")
        objects = memory(3, 2) + memory(4, 2, other) + memory(5, 1)
        self.assertTrue(self.store(adapter, which, objects).is_successful())
        task = adapter.submit_lookup_and_lock_task(which, {0: layout(), 1: other})
        found = self.outcome(adapter.get_lookup_and_lock_event_fd(), adapter.query_lookup_and_lock_result, task)
        self.assertEqual(found, [True] * 5)
        adapter.submit_unlock(which)
        self.assertEqual(adapter.report_status()["locked_lookups"], 0)
        loaded = memory(None, 2) + memory(None, 2, other) + memory(None, 1)
        self.assertEqual(self.load(adapter, which, loaded), [True] * 5)
        self.assertTrue(all(torch.equal(a.raw_data, b.raw_data) for a, b in zip(objects, loaded, strict=True)))

    def test_many_tasks_at_once_are_told_apart(self):
        adapter = self.adapter()
        lots, objects = [keys(100 + at, 3) for at in range(20)], [memory(100 + at, 3) for at in range(20)]
        open_tasks = {adapter.submit_store_task(*each) for each in zip(lots, objects, strict=True)}
        self.assertEqual(len(open_tasks), 20)
        while open_tasks:
            self.signalled(adapter.get_store_event_fd())
            for task, result in adapter.pop_completed_store_tasks().items():
                self.assertTrue(result.is_successful())
                open_tasks.remove(task)
        targets = [memory(None, 3) for _ in lots]
        waiting = {adapter.submit_load_task(*each): at for at, each in enumerate(zip(lots, targets, strict=True))}
        while waiting:
            self.signalled(adapter.get_load_event_fd())
            for task in list(waiting):
                if (found := adapter.query_load_result(task)) is not None:
                    self.assertEqual(bits(found), [True] * 3)
                    at = waiting.pop(task)
                    for one, other in zip(objects[at], targets[at], strict=True):
                        self.assertTrue(torch.equal(one.raw_data, other.raw_data))

    def test_a_byte_that_flips_in_a_node_is_a_miss(self):
        adapter, which, objects = self.adapter(), keys(6, 3), memory(6, 3)
        self.store(adapter, which, objects)
        self.assertGreater(self.node.flip_byte(bytes(objects[1].raw_data[:64].tolist())), 0)
        self.assertEqual(self.load(adapter, which, memory(None, 3)), [True, False, True])

    def test_an_object_of_another_size_is_a_miss(self):
        adapter, which = self.adapter(), keys(7, 1)
        self.store(adapter, which, memory(7, 1))
        short = memory(None, 1)
        short[0].set_used_size(short[0].get_size() - 64)
        self.assertEqual(self.load(adapter, which, short), [False])

    def test_events_are_three_and_listeners_hear(self):
        adapter = self.adapter()
        fds = {adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}
        self.assertEqual(len(fds), 3)
        heard = []

        class Listener(L2AdapterListener):
            def on_l2_keys_stored(self, keys, sizes):
                heard.append(("stored", keys, sizes))

            def on_l2_keys_accessed(self, keys):
                heard.append(("accessed", keys))

            def on_l2_keys_deleted(self, keys):
                heard.append(("deleted", keys))

        adapter.register_listener(Listener())
        which, objects = keys(8, 2), memory(8, 2)
        self.store(adapter, which, objects)
        self.load(adapter, which, memory(None, 2))
        adapter.delete(which[:1])
        sizes = [each.get_size() for each in objects]
        self.assertEqual(heard, [("stored", which, sizes), ("accessed", which), ("deleted", which[:1])])
        self.assertEqual(self.look(adapter, which), [False, True])
        self.assertEqual((adapter.get_usage().usage_fraction, adapter.supports_global_eviction), (-1.0, False))
        self.assertTrue(adapter.report_status()["is_healthy"])

    def test_what_is_locked_is_not_evicted(self):
        node = Node("4MiB")
        self.addCleanup(node.end)
        adapter = self.adapter(endpoints=node.address)
        described = layout(torch.Size((1, 1, 256, 512)))  # 256 KiB
        kept = keys(9, 2)
        self.store(adapter, kept, memory(9, 2, described))
        self.assertEqual(self.look(adapter, kept, described, unlock=False), [True, True])
        for more in range(10, 20):
            self.store(adapter, keys(more, 4), memory(more, 4, described))
        self.assertEqual(self.load(adapter, kept, memory(None, 2, described)), [True, True])
        self.assertEqual(adapter.report_status()["locked_lookups"], 1)
        adapter.submit_unlock(kept[:1])
        self.assertEqual(adapter.report_status()["locked_lookups"], 1)  # the other one still is
        adapter.submit_unlock(kept[1:] + keys(77, 1))
        self.assertEqual(adapter.report_status()["locked_lookups"], 0)
        for more in range(20, 40):
            self.store(adapter, keys(more, 4), memory(more, 4, described))
        self.assertEqual(self.look(adapter, kept, described), [False, False])


class Manager(AdapterCase):
    """LMCache's storage manager with its controllers' threads."""

    def manager(self, name):
        memory = config.L1MemoryManagerConfig(16 << 20, False, shm_name=f"larder_test_{os.getpid()}_{name}")
        made = StorageManager(
            config.StorageManagerConfig(
                config.L1ManagerConfig(memory),
                config.EvictionConfig("LRU"),
                L2AdaptersConfig([self.plugin()]),
            )
        )
        self.addCleanup(made.close)
        adapter = made.l2_adapters()[0][1]
        self.until_ready(adapter)
        return made, adapter

    def prefetch(self, manager, which):
        spec = PrefetchTaskSpec([GroupedObjectKeys(which, 0, layout())])
        handle = manager.submit_prefetch_task(spec)
        self.assertTrue(manager.wait_prefetch_status(handle, PATIENCE_S))
        return bits(manager.query_prefetch_status(handle).l2_hit_cells[0])

    def test_one_stores_and_another_prefetches(self):
        (writer, _), (reader, adapter) = self.manager("writer"), self.manager("reader")
        onlooker = self.adapter()
        which, wanted = keys(50, 6), memory(50, 6)
        for key, each in writer.reserve_write(which[:5], layout()).items():
            each.raw_data.view(torch.uint8)[: each.get_size()] = wanted[which.index(key)].raw_data
        writer.finish_write(which[:5])
        self.wait_until(lambda: self.look(onlooker, which) == [True] * 5 + [False])
        self.assertEqual(self.prefetch(reader, which), [True] * 5 + [False])
        with reader.read_prefetched_results(which[:5]) as objects:
            for one, other in zip(wanted, objects, strict=False):
                self.assertTrue(torch.equal(one.raw_data, other.raw_data.view(torch.uint8)[: other.get_size()]))
            self.assertEqual(len(objects), 5)
        reader.finish_read_prefetched(which[:5])
        self.wait_until(lambda: adapter.report_status()["locked_lookups"] == 0)
        self.assertTrue(reader.report_status()["l2_adapters"])


class Sharing(AdapterCase):
    def setUp(self):
        self.which = keys(60, 2)
        self.assertTrue(self.store(self.adapter(), self.which, memory(60, 2)).is_successful())

    def assert_foreign(self, adapter, which=None, described=None):
        which = which or self.which
        self.assertEqual(self.look(adapter, which, described), [False] * 2)
        self.assertEqual(self.load(adapter, which, memory(None, 2, described)), [False] * 2)

    def test_the_same_weights_elsewhere_are_the_same(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "elsewhere"
        shutil.copytree(MODELS / "tiny", path)
        self.assertEqual(self.look(self.adapter(weights={"m": str(path)}), self.which), [True, True])

    def test_what_differs_is_foreign(self):
        adapter = self.adapter()
        self.assert_foreign(adapter, described=layout(dtype=torch.float16))
        self.assert_foreign(adapter, described=layout(torch.Size((4, 2, 16, 64))))
        for more in ({"rank": 1}, {"group": 1}, {"salt": "somebody"}):
            self.assert_foreign(adapter, keys(60, 2, **more))
        self.assert_foreign(self.adapter(weights={"m": str(MODELS / "llama")}))
        self.assert_foreign(self.adapter(tenant=f"{self.id()} another"))
        self.assert_foreign(self.adapter(cache_prefix="another"))
        other = self.adapter(weights={"m": str(MODELS / "tiny"), "n": str(MODELS / "tiny")})
        self.until_ready(other, "n")
        self.assert_foreign(other, keys(60, 2, model="n"))
        self.assertEqual(self.look(other, self.which), [True, True])

    def test_a_group_that_was_not_described_is_a_miss(self):
        adapter = self.adapter()
        task = adapter.submit_lookup_and_lock_task(self.which, {})
        found = self.outcome(adapter.get_lookup_and_lock_event_fd(), adapter.query_lookup_and_lock_result, task)
        self.assertEqual(found, [False, False])


class Faults(AdapterCase):
    def assert_does_nothing(self, adapter):
        which = keys(70, 2)
        self.assertFalse(self.store(adapter, which, memory(70, 2)).is_successful())
        self.assertEqual(self.look(adapter, which), [False, False])
        self.assertEqual(self.load(adapter, which, memory(None, 2)), [False, False])
        adapter.submit_unlock(which)
        adapter.delete(which)

    def test_a_model_whose_weights_nobody_knows_is_one_line(self):
        with self.lines() as lines:
            adapter = self.adapter(ready=False, weights={})
            self.assert_does_nothing(adapter)
            self.wait_until(lambda: lines)
            self.assert_does_nothing(adapter)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn('"weights": {"m": "/path/of/its/weights"}', lines[0])

    def test_settings(self):
        with self.lines() as lines:
            adapter = self.adapter(endpoint="x", colour="blue")
        text = "\n".join(lines)
        self.assertIn('"endpoint" is not known and ignored; did you mean "endpoints"?', text)
        self.assertIn('"colour" is not known', text)
        self.assertTrue(self.store(adapter, keys(71, 1), memory(71, 1)).is_successful())
        for wrong in ({"deadline_ms": -1}, {"weights": "tiny"}, {"weights": {"m": 1}}):
            with self.lines() as lines:
                adapter = self.adapter(ready=False, **wrong)
            self.assertEqual(len([line for line in lines if "off, " in line and "must be" in line]), 1, lines)
            self.assert_does_nothing(adapter)
            self.assertFalse(adapter.report_status()["is_healthy"])

    def test_hashes_that_are_too_short_turn_it_off(self):
        adapter = self.adapter()
        short = [ObjectKey(b"12345678", "m", 0)]
        with self.lines() as lines:
            self.assertFalse(self.store(adapter, short, memory(72, 1)).is_successful())
        self.assertIn("--hash-algorithm blake3", "\n".join(lines))
        self.assert_does_nothing(adapter)

    def test_no_node_at_start_is_one_line_and_later_it_is_used(self):
        port = free_port()
        with self.lines() as lines:
            adapter = self.adapter(endpoints=f"127.0.0.1:{port}")
            for _ in range(5):
                self.assert_does_nothing(adapter)
            self.assertFalse(adapter.report_status()["is_healthy"])
        self.assertEqual(len([line for line in lines if "no node answers" in line]), 1, lines)
        node = Node("64MiB", "--data-listen", f"127.0.0.1:{port}")
        self.addCleanup(node.end)
        which = keys(73, 1)
        self.wait_until(lambda: self.store(adapter, which, memory(73, 1)).is_successful())
        self.assertEqual(self.look(adapter, which), [True])

    def test_a_node_that_dies_is_a_miss_and_comes_back_empty(self):
        node = Node("64MiB")
        self.addCleanup(node.end)
        adapter = self.adapter(endpoints=node.address, deadline_ms=300)
        which = keys(74, 2)
        self.assertTrue(self.store(adapter, which, memory(74, 2)).is_successful())
        self.assertEqual(self.look(adapter, which, unlock=False), [True] * 2)
        node.kill()
        for at in range(6):
            self.assertEqual(self.load(adapter, which, memory(None, 2)), [False] * 2)
            self.assertEqual(self.look(adapter, which), [False] * 2)
            self.assertFalse(self.store(adapter, keys(80 + at, 1), memory(80 + at, 1)).is_successful())
        adapter.submit_unlock(which)
        node.start()
        self.wait_until(lambda: self.store(adapter, which, memory(74, 2)).is_successful())
        self.assertEqual(self.load(adapter, which, memory(None, 2)), [True] * 2)

    def with_two_stored(self, seed, **options):
        node = Node("64MiB")
        self.addCleanup(node.end)
        adapter = self.adapter(endpoints=node.address, **options)
        self.store(adapter, keys(seed, 2), memory(seed, 2))
        return node, adapter, keys(seed, 2), memory(None, 2)

    def test_a_node_that_hangs_is_left_alone_and_close_returns(self):
        node, adapter, which, target = self.with_two_stored(75, deadline_ms=200)
        node.pause()
        with self.lines() as lines:
            for _ in range(8):
                self.assertEqual(self.load(adapter, which, target), [False] * 2)
        self.assertEqual(len([line for line in lines if "leaving it alone" in line]), 1, lines)
        other = self.adapter(endpoints=node.address, deadline_ms=60000, ready=False)
        other.close()
        node.resume()
        self.wait_until(lambda: self.load(adapter, which, target) == [True] * 2)

    def test_close_ends_what_is_under_way(self):
        node, adapter, which, target = self.with_two_stored(76, deadline_ms=60000)
        node.pause()
        adapter.submit_load_task(which, target)
        adapter.close()  # not after a minute; what has not landed by now never does
        landed = [each.raw_data.clone() for each in target]
        node.resume()
        time.sleep(0.2)
        self.assertTrue(all(torch.equal(one, each.raw_data) for one, each in zip(landed, target, strict=True)))

    def test_an_exception_inside_ends_it_and_not_lmcache(self):
        adapter, which = self.adapter(), keys(77, 1)

        class Broken(TensorMemoryObj):
            @property
            def byte_array(self):
                raise ZeroDivisionError("broken")

        plain = memory(77, 1)[0]
        with self.lines() as lines:
            result = self.store(adapter, which, [Broken(plain.raw_data, plain.meta, None)])
        self.assertFalse(result.is_successful())
        self.assertIn("ZeroDivisionError", "\n".join(lines))
        self.assert_does_nothing(adapter)


class Weights(unittest.TestCase):
    """What a model's name stands for, over time."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "model.safetensors"
        self.models = models.Models({"m": self.folder.name}, logging.getLogger("larder.test.weights"))
        self.now = 1000.0
        clock = unittest.mock.patch.object(models, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        clock.start()
        self.addCleanup(clock.stop)

    def settled(self):
        """The digest once nothing is looked for any more."""
        end = time.time() + PATIENCE_S
        while True:
            digest = self.models.digest("m")
            if not self.models._models["m"].finding:
                return digest or self.models.digest("m")
            self.assertLess(time.time(), end)
            time.sleep(0.01)

    def test_weights_that_are_exchanged_end_it_for_their_model(self):
        self.file.write_bytes(b"old" * 1000)
        first = self.settled()
        self.assertTrue(first)
        self.now += models.LOOK_S
        self.assertEqual(self.models.digest("m"), first)
        self.file.write_bytes(b"new" * 1000)
        self.now += models.LOOK_S
        with self.assertLogs("larder.test.weights", "WARNING") as lines:
            self.assertEqual(self.models.digest("m"), "")
        self.assertIn("exchanged", lines.output[0])
        self.file.write_bytes(b"old" * 1000)
        self.now += models.RETRY_S
        self.assertEqual(self.models.digest("m"), "")

    def test_weights_that_were_not_there_are_looked_for_again(self):
        with self.assertLogs("larder.test.weights", "WARNING"):
            self.assertEqual(self.settled(), "")
        self.file.write_bytes(b"here now")
        self.now += models.RETRY_S / 2
        self.assertEqual(self.settled(), "")
        self.now += models.RETRY_S
        self.assertTrue(self.settled())


class Interface(unittest.TestCase):
    def test_the_interface_is_the_one_that_is_known(self):
        self.assertTrue(issubclass(LarderL2Adapter, L2AdapterInterface))
        self.assertEqual(LarderL2Adapter.__abstractmethods__, frozenset())
        self.assertLessEqual(L2AdapterInterface.__abstractmethods__, set(compatibility.CALLS))
        self.assertEqual(lacking_calls(L2AdapterInterface, compatibility.CALLS), "")
        log = logging.getLogger("lmcache.larder_kv")
        with self.assertLogs(log, "WARNING"):
            compatibility.check("9.9", L2AdapterInterface, log)
        with self.assertRaisesRegex(Exception, "another interface"):
            compatibility.check("9.9", types.SimpleNamespace(), log)

    def test_locks_run_out(self):
        locks = Locks()
        locks.add(1, ["a", "b"], 10.0, 0.0)
        locks.add(2, ["a"], 11.0, 1.0)
        self.assertEqual(locks.drop(["a"]), [])
        self.assertEqual(locks.drop(["a"]), [2])
        self.assertEqual(locks.drop(["a"]), [])
        locks.add(3, ["c"], 30.0, 20.0)  # the first one has run out by now
        self.assertEqual((len(locks), locks.drop(["b"]), locks.drop(["c"]), len(locks)), (1, [], [3], 0))
