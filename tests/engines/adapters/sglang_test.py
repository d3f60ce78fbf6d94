"""larder_kv.sglang on SGLang's own parts: its factory, its host pools, its page hashes and its controller's calls.

SGLang's engine does not start HiCache without CUDA, so nothing here runs a model. What is proven is that every byte of a page
that one backend stored is in the host pool of another, that nothing else there changed, and that nothing comes back that is
not the same: each test with a real larder-node.
"""

import json
import logging
import pathlib
import re
import shutil
import tempfile
import time
import types
import unittest

import torch
from engine import MODELS
from logged import logged
from nodes import Node, free_port
from sglang.srt import runtime_context
from sglang.srt.managers.cache_controller import HiCacheController, StorageOperation
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage import StorageBackendFactory
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

PAGE, SLOTS, LAYERS = 4, 256, 3
LAYOUTS = ("layer_first", "page_first", "page_first_direct")


def publish(**arguments):
    """What SGLang's scheduler process says about its model."""
    set_global_server_args_for_scheduler(
        ServerArgs(**{"model_path": str(MODELS / "tiny"), "device": "cpu", "dtype": "float32", **arguments})
    )


def host_pool(kind="mha", layout="page_first", seed=None, dtype=torch.bfloat16, heads=2, page=PAGE):
    """SGLang's, with random bytes in it or with zeros."""
    with host_memory_budget_scope(1 << 30):
        if kind == "mha":
            device = MHATokenToKVPool(SLOTS, page, dtype, heads, 8, LAYERS, "cpu", False)
            more, make = {}, MHATokenToKVPoolHost
        else:
            device = MLATokenToKVPool(SLOTS, page, dtype, 32, 8, LAYERS, "cpu", False)
            more, make = {"target_layer_num": LAYERS}, MLATokenToKVPoolHost
        info = device.get_device_pool_infos()[0].buffer_info
        pool = make(info, 1.0, 0, page, layout, False, device_capacity_tokens=SLOTS, start_layer=0, end_layer=LAYERS, **more)
    raw = pool.kv_buffer.view(torch.uint8)
    if seed is None:
        raw.zero_()
    else:
        raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)))
    return pool


def chain(seed, pages, page=PAGE):
    tokens = torch.randint(0, 30000, (pages * page,), generator=torch.Generator().manual_seed(seed)).tolist()
    return get_storage_hash_str(tokens, None, page_size=page)


def slots(*pages, page=PAGE):
    return torch.cat([torch.arange(each * page, (each + 1) * page) for each in pages])


def page_bytes(pool, page):
    return pool.get_data_page(page * pool.page_size).contiguous().view(torch.uint8)


class BackendCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("128MiB")
        cls.addClassCleanup(cls.node.end)

    def setUp(self):
        publish()

    def backend(self, pool, rank=0, ranks=1, model="tiny", **extra):
        """As SGLang's controller makes it."""
        config = HiCacheStorageConfig(
            tp_rank=rank,
            tp_size=ranks,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=isinstance(pool, MLATokenToKVPoolHost),
            enable_storage_metrics=True,
            is_page_first_layout=pool.layout == "page_first",
            model_name=model,
            extra_config={
                "backend_name": "larder",
                "module_path": "larder_kv.sglang",
                "class_name": "LarderStorage",
                "interface_v1": 1,
                "endpoints": self.node.address,
                "tenant": self.id(),
                **extra,
            },
        )
        made = StorageBackendFactory.create_backend("dynamic", config, pool)
        self.addCleanup(made.close)
        made.register_mem_pool_host(pool)
        made.on_host_pools_registered()
        return made

    def lines(self):
        return logged("larder_kv.sglang")


class Bytes(BackendCase):
    def test_every_byte_comes_back_and_no_other_changes(self):
        wanted, here, there = chain(1, 6), (3, 40, 7, 8, 0, 21), (60, 2, 5, 33, 34, 11)
        for kind in ("mha", "mla"):
            for layout in LAYOUTS:
                with self.subTest(kind=kind, layout=layout):
                    source = host_pool(kind, layout, seed=7)
                    writer = self.backend(source)
                    self.assertEqual(writer.batch_exists(wanted), 0)
                    self.assertEqual(writer.batch_set_v1(wanted, slots(*here)), [True] * 6)
                    target = host_pool(kind, layout, seed=8)
                    before = target.kv_buffer.clone()
                    reader = self.backend(target)
                    self.assertEqual(reader.batch_exists(wanted), 6)
                    self.assertEqual(reader.batch_get_v1(wanted, slots(*there)), [True] * 6)
                    for one, other in zip(here, there, strict=True):
                        self.assertTrue(torch.equal(page_bytes(source, one), page_bytes(target, other)), (one, other))
                    for other in there:  # put back what was there: then all must be as it was
                        target.set_from_flat_data_page(other * PAGE, self.page_of(before, target, other))
                    self.assertTrue(torch.equal(before.view(torch.uint8), target.kv_buffer.view(torch.uint8)))

    @staticmethod
    def page_of(buffer, pool, page):
        now, pool.kv_buffer = pool.kv_buffer, buffer
        try:
            return pool.get_data_page(page * PAGE).clone()
        finally:
            pool.kv_buffer = now

    def test_a_prefix_ends_at_the_first_page_that_is_not_there(self):
        pool = host_pool(seed=1)
        backend, wanted = self.backend(pool), chain(2, 8)
        backend.batch_set_v1(wanted[:3] + wanted[4:], slots(*range(7)))
        self.assertEqual(backend.batch_exists(wanted), 3)
        self.assertEqual([backend.exists(each) for each in wanted[2:5]], [True, False, True])
        came = backend.batch_get_v1(wanted, slots(*range(20, 28)))
        self.assertEqual(came, [True] * 3 + [False] + [True] * 4)
        self.assertEqual(backend.batch_exists([]), 0)
        self.assertEqual((backend.batch_get_v1([], slots(0)[:0]), backend.batch_set_v1([], slots(0)[:0])), ([], []))

    def test_many_pages_at_once(self):
        source, target = host_pool(seed=3), host_pool()
        wanted = chain(3, SLOTS // PAGE)
        self.assertEqual(sum(self.backend(source).batch_set_v1(wanted, slots(*range(len(wanted))))), len(wanted))
        self.assertEqual(sum(self.backend(target).batch_get_v1(wanted, slots(*range(len(wanted))))), len(wanted))
        one, other = (pool.kv_buffer[:, :SLOTS].view(torch.uint8) for pool in (source, target))
        self.assertTrue(torch.equal(one, other))

    def test_a_byte_that_flips_in_a_node_is_a_miss(self):
        source, target = host_pool(seed=4), host_pool()
        wanted = chain(4, 3)
        self.backend(source).batch_set_v1(wanted, slots(0, 1, 2))
        flipped = self.node.flip_byte(bytes(page_bytes(source, 1)[:64].tolist()))
        self.assertGreater(flipped, 0)
        self.assertEqual(self.backend(target).batch_get_v1(wanted, slots(0, 1, 2)), [True, False, True])

    def test_a_later_page_of_the_controller_knows_its_depth(self):
        backend, wanted = self.backend(host_pool(seed=5)), chain(5, 4)
        for at in (0, 2):
            info = HiCacheStorageExtraInfo(prefix_keys=wanted[:at])
            self.assertEqual(backend.batch_set_v1(wanted[at : at + 2], slots(at, at + 1), info), [True, True])
        self.assertEqual(backend.batch_exists(wanted, HiCacheStorageExtraInfo()), 4)


class Controller(BackendCase):
    """SGLang's controller itself asks, loads and stores; only its queues and devices are left out."""

    def controller(self, pool):
        made = types.SimpleNamespace(storage_backend=self.backend(pool), storage_host_pool=pool, page_size=PAGE)
        for name in ("_storage_hit_query", "_page_get_zero_copy", "_page_set_zero_copy", "_page_backup"):
            setattr(made, name, types.MethodType(getattr(HiCacheController, name), made))
        made.page_set_func = made._page_set_zero_copy
        return made

    def test_query_load_and_backup(self):
        tokens = list(range(100, 100 + 150 * PAGE))  # more than the 128 pages of a call
        source, target = (host_pool(seed=seed, page=PAGE) for seed in (1, 2))
        writer = self.controller(source)
        hashes = get_storage_hash_str(tokens, None, page_size=PAGE)
        for begin in range(0, 150, 50):
            part = hashes[begin : begin + 50]
            stored = StorageOperation(slots(*range(50)), tokens[: 50 * PAGE], hash_value=part)
            writer._page_backup(stored)
            self.assertEqual(stored.completed_tokens, 50 * PAGE)
        reader = self.controller(target)
        asked = types.SimpleNamespace(token_ids=tokens, last_hash=None, prefix_keys=None, request_id="r")
        found, count = reader._storage_hit_query(asked)
        self.assertEqual((found, count), (hashes, 150 * PAGE))
        self.assertEqual(reader._page_get_zero_copy(asked, hashes[50:100], slots(*range(50))), 50)
        for page in range(50):
            self.assertTrue(torch.equal(page_bytes(source, page), page_bytes(target, page)))


class Sharing(BackendCase):
    def setUp(self):
        super().setUp()
        self.wanted = chain(6, 3)
        self.writer = self.backend(host_pool(seed=6))
        self.assertEqual(self.writer.batch_set_v1(self.wanted, slots(0, 1, 2)), [True] * 3)

    def assert_foreign(self, backend):
        self.assertEqual(backend.batch_exists(self.wanted), 0)
        self.assertEqual(backend.batch_get_v1(self.wanted, slots(0, 1, 2)), [False] * 3)

    def copy_of_model(self, change):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "tiny"
        shutil.copytree(MODELS / "tiny", path)
        change(path)
        return str(path)

    def test_the_same_model_elsewhere_is_the_same(self):
        publish(model_path=self.copy_of_model(lambda path: None))
        self.assertEqual(self.backend(host_pool(), model="another/name").batch_exists(self.wanted), 3)

    def test_other_weights_or_configuration_are_foreign(self):
        def weights(path):
            file = next(path.glob("*.safetensors"))
            content = bytearray(file.read_bytes())
            content[-5] ^= 1
            file.write_bytes(content)

        def rope(path):
            config = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))

        for change in (weights, rope):
            publish(model_path=self.copy_of_model(change))
            self.assert_foreign(self.backend(host_pool()))

    def test_other_dtypes_layouts_ranks_and_settings_are_foreign(self):
        for pool in (
            host_pool(dtype=torch.float16),
            host_pool(layout="page_first_direct"),
            host_pool(layout="layer_first"),
            host_pool(heads=4),
            host_pool("mla"),
        ):
            self.assert_foreign(self.backend(pool))
        self.assert_foreign(self.backend(host_pool(), ranks=2))
        self.assert_foreign(self.backend(host_pool(), rank=1, ranks=2))
        self.assert_foreign(self.backend(host_pool(), tenant=f"{self.id()} another"))
        self.assert_foreign(self.backend(host_pool(), cache_prefix="another"))
        self.assertEqual(self.backend(host_pool()).batch_exists(self.wanted), 3)
        for arguments in ({"dtype": "bfloat16"}, {"kv_cache_dtype": "fp8_e5m2"}, {"kv_cache_dtype": "fp8_e4m3"}):
            publish(**arguments)
            self.assert_foreign(self.backend(host_pool()))

    def test_adapters_count_by_what_is_in_their_files(self):
        """SGLang's hashes have an adapter's name and path; the files may have changed since."""
        def lora(*paths):
            publish(enable_lora=True, lora_paths=list(paths), max_lora_rank=8, lora_target_modules=["q_proj"])

        path = self.copy_of_model(lambda path: None)
        lora(f"a={path}")
        self.assert_foreign(self.backend(host_pool()))
        self.backend(host_pool(seed=1)).batch_set_v1(self.wanted, slots(0, 1, 2))
        for again in (f"a={path}", {"lora_name": "a", "lora_path": path, "pinned": False}):
            lora(again)
            self.assertEqual(self.backend(host_pool()).batch_exists(self.wanted), 3)
        weights = next(pathlib.Path(path).glob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:-1] + b"!")
        lora(f"a={path}")
        self.assert_foreign(self.backend(host_pool()))
        lora("a=/nowhere/at/all")
        with self.lines() as lines:
            self.assert_foreign(self.backend(host_pool()))
        self.assertIn("the weights of /nowhere/at/all are not on this machine", "\n".join(lines))

    def test_another_page_size_is_foreign(self):
        pool = host_pool(page=2 * PAGE)
        backend = self.backend(pool)
        self.assertEqual(backend.batch_exists(self.wanted), 0)
        self.assertEqual(backend.batch_get_v1(self.wanted, slots(0, 1, 2, page=2 * PAGE)), [False] * 3)

    def test_one_rank_writes_a_replicated_cache_and_all_read_it(self):
        pools = [host_pool("mla", seed=seed) for seed in (1, 2)]
        first, second = (self.backend(pool, rank=rank, ranks=2) for rank, pool in enumerate(pools))
        wanted = chain(7, 2)
        self.assertEqual(second.batch_set_v1(wanted, slots(0, 1)), [True, True])
        self.assertEqual(second.batch_exists(wanted), 0)  # the other one does it
        self.assertEqual(first.batch_set_v1(wanted, slots(0, 1)), [True, True])
        self.assertEqual(second.batch_get_v1(wanted, slots(5, 6)), [True, True])
        self.assertTrue(torch.equal(page_bytes(pools[0], 1), page_bytes(pools[1], 6)))

    def test_clear_forgets_everywhere_and_weights_that_change_are_private(self):
        reader = self.backend(host_pool())
        other = self.backend(host_pool(), tenant=f"{self.id()} another")
        other.batch_set_v1(self.wanted, slots(0, 1, 2))
        self.assertTrue(self.writer.clear())
        self.assertEqual((reader.batch_exists(self.wanted), other.batch_exists(self.wanted)), (0, 3))
        reader.batch_set_v1(self.wanted, slots(0, 1, 2))
        self.assertEqual(self.writer.batch_exists(self.wanted), 0)  # it may have other weights now
        self.assertEqual(reader.batch_exists(self.wanted), 3)
        with self.lines() as lines:
            runtime_context.get_context().override("test", weight_version="v2")
            self.addCleanup(publish)
            self.assertEqual(reader.batch_exists(self.wanted), 0)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("v2", lines[0])
        self.assertEqual(reader.batch_set_v1(self.wanted, slots(0, 1, 2)), [True] * 3)
        self.assertEqual(reader.batch_exists(self.wanted), 3)


class SeveralPools(BackendCase):
    """The v2 calls, with a second real pool beside the first."""

    def setUp(self):
        super().setUp()
        self.pools = [(host_pool(seed=1), host_pool(heads=4, seed=2)), (host_pool(), host_pool(heads=4))]
        self.writer, self.reader = (self.backend(kv) for kv, _ in self.pools)
        for backend, (kv, side) in zip((self.writer, self.reader), self.pools, strict=True):
            backend.register_mem_host_pool_v2(kv, PoolName.KV)
            backend.register_mem_host_pool_v2(side, PoolName.SWA)
        self.wanted = chain(8, 6)

    def side(self, keys, *pages, policy=PoolHitPolicy.ALL_PAGES):
        return PoolTransfer(PoolName.SWA, host_indices=slots(*pages) if pages else None, keys=keys, hit_policy=policy)

    def test_side_pools_have_their_own_bytes(self):
        self.writer.batch_set_v1(self.wanted, slots(*range(6)))
        self.assertEqual(self.reader.batch_exists_v2(self.wanted, [self.side(None)]).kv_hit_pages, 0)
        stored = self.writer.batch_set_v2([self.side(self.wanted, *range(10, 16))])
        self.assertEqual(stored, {PoolName.SWA: [True] * 6})
        found = self.reader.batch_exists_v2(self.wanted, [self.side(None)])
        self.assertEqual((found.kv_hit_pages, found.extra_pool_hit_pages), (6, {"kv": 6, "swa": 6}))
        self.assertEqual(self.reader.batch_get_v2([self.side(self.wanted[2:4], 0, 1)]), {PoolName.SWA: [True] * 2})
        self.assertTrue(torch.equal(page_bytes(self.pools[0][1], 13), page_bytes(self.pools[1][1], 1)))

    def test_hit_policies(self):
        self.writer.batch_set_v1(self.wanted, slots(*range(6)))
        self.writer.batch_set_v2([self.side([self.wanted[at] for at in (0, 1, 3, 4)], 0, 1, 3, 4)])
        every = self.reader.batch_exists_v2(self.wanted, [self.side(None)])
        self.assertEqual((every.kv_hit_pages, every.restorable_prefix_pages), (2, [1, 2]))
        last = [self.side(["", ""], policy=PoolHitPolicy.TRAILING_PAGES)]
        trailing = self.reader.batch_exists_v2(self.wanted, last)
        self.assertEqual((trailing.kv_hit_pages, trailing.restorable_prefix_pages), (5, [1, 2, 5]))
        own = self.reader.batch_exists_v2(self.wanted, [self.side(None, policy=PoolHitPolicy.BLOCK_GROUPS)])
        self.assertEqual((own.kv_hit_pages, own.extra_pool_hit_pages), (6, {"kv": 6}))

    def test_a_pool_that_nobody_registered_has_nothing(self):
        self.writer.batch_set_v1(self.wanted, slots(*range(6)))
        unknown = PoolTransfer(PoolName.DRAFT, host_indices=slots(0), keys=self.wanted[:1])
        self.assertEqual(self.writer.batch_exists_v2(self.wanted, [unknown]).kv_hit_pages, 0)
        self.assertEqual(self.writer.batch_get_v2([unknown]), {PoolName.DRAFT: [False]})
        self.assertEqual(self.writer.batch_set_v2([unknown]), {PoolName.DRAFT: [False]})


class Copies(BackendCase):
    """Without interface_v1: each page goes through a tensor."""

    def test_tensors_come_back(self):
        source, target = host_pool(layout="layer_first", seed=1), host_pool(layout="layer_first")
        with self.lines() as lines:
            writer, reader = (self.backend(pool, interface_v1=0) for pool in (source, target))
        self.assertTrue(any("interface_v1" in line for line in lines), lines)
        wanted = chain(9, 3)
        self.assertTrue(writer.batch_set(wanted, [source.get_data_page(at * PAGE) for at in range(3)]))
        self.assertEqual((reader.batch_exists(wanted), reader.exists(wanted[1])), (3, True))
        came = reader.batch_get([*wanted, "unknown"], [target.get_dummy_flat_data_page() for _ in range(4)])
        for at in range(3):
            self.assertTrue(torch.equal(came[at].view(torch.uint8), page_bytes(source, at)))
        self.assertIsNone(came[3])
        self.assertTrue(torch.equal(reader.get(wanted[0]).view(torch.uint8), page_bytes(source, 0)))
        self.assertIsNone(reader.get("unknown"))
        self.assertTrue(writer.set("one", source.get_data_page(0)))
        self.assertTrue(reader.exists("one"))
        self.assertFalse(writer.set("nothing"))

    def test_a_page_of_another_size_is_a_miss(self):
        pool = host_pool(seed=1)
        backend, key = self.backend(pool, interface_v1=0), chain(10, 1)[0]
        backend.set(key, pool.get_data_page(0))
        short = pool.get_dummy_flat_data_page()[: -PAGE]
        self.assertIsNone(backend.get(key, short))
        self.assertIsNotNone(backend.get(key, pool.get_dummy_flat_data_page()))

    def test_pages_where_they_lie_are_not_mixed_up_with_copies(self):
        """Their bytes stand in another order."""
        pool = host_pool(layout="layer_first", seed=1)
        key = chain(11, 1)
        self.backend(pool).batch_set_v1(key, slots(0))
        self.assertEqual(self.backend(pool, interface_v1=0).batch_exists(key), 0)


class Faults(BackendCase):
    def test_short_or_missing_memory_is_refused(self):
        backend, wanted = self.backend(host_pool(seed=1)), chain(12, 3)
        with self.lines() as lines:
            for indices in (slots(0, 1), slots(0, 1, 2)[:-1], slots(0)[:0]):
                self.assertEqual(backend.batch_set_v1(wanted, indices), [False] * 3)
                self.assertEqual(backend.batch_get_v1(wanted, indices), [False] * 3)
        self.assertEqual(len(lines), 6, lines)
        self.assertEqual(backend.batch_set_v1(wanted, slots(0, 1, 2)), [True] * 3)

    def test_unknown_settings_are_named_and_senseless_ones_turn_it_off(self):
        with self.lines() as lines:
            backend = self.backend(host_pool(), endpoint="x", colour="blue")
        text = "\n".join(lines)
        self.assertIn('"endpoint" is not known and ignored; did you mean "endpoints"?', text)
        self.assertIn('"colour" is not known', text)
        self.assertEqual(backend.batch_set_v1(chain(13, 1), slots(0)), [True])
        for wrong, wanted in (
            ({"deadline_ms": "soon"}, "off, .*must be a number"),
            ({"endpoints": 7}, "off, .*must be a text"),
            ({"endpoints": "nowhere"}, "no node answers at nowhere .*host:port"),
        ):
            with self.lines() as lines:
                backend = self.backend(host_pool(), **wrong)
            self.assertEqual(len([line for line in lines if re.search(wanted, line)]), 1, lines)
            self.assert_does_nothing(backend)

    def assert_does_nothing(self, backend):
        wanted = chain(14, 2)
        self.assertEqual(backend.batch_exists(wanted), 0)
        self.assertEqual(backend.batch_get_v1(wanted, slots(0, 1)), [False] * 2)
        self.assertEqual(backend.batch_set_v1(wanted, slots(0, 1)), [False] * 2)
        self.assertEqual((backend.exists(wanted[0]), backend.get(wanted[0])), (False, None))
        self.assertFalse(backend.set(wanted[0], torch.zeros(8)))
        self.assertEqual(backend.batch_exists_v2(wanted, []).kv_hit_pages, 0)

    def test_no_node_at_start_is_one_line_and_later_it_is_used(self):
        port = free_port()
        with self.lines() as lines:
            backend = self.backend(host_pool(seed=1), endpoints=f"127.0.0.1:{port}")
            for _ in range(5):
                self.assert_does_nothing(backend)
        self.assertEqual(len([line for line in lines if "no node answers" in line]), 1, lines)
        self.assertEqual([line for line in lines if "off, " in line], [])
        node = Node("64MiB", "--data-listen", f"127.0.0.1:{port}")
        self.addCleanup(node.end)
        wanted = chain(15, 1)
        self.wait_until(lambda: backend.batch_set_v1(wanted, slots(0)) == [True])
        self.assertEqual(backend.batch_exists(wanted), 1)

    def test_a_node_that_dies_is_a_miss_and_comes_back_empty(self):
        node = Node("64MiB")
        self.addCleanup(node.end)
        backend = self.backend(host_pool(seed=1), endpoints=node.address, deadline_ms=300)
        wanted = chain(16, 2)
        self.assertEqual(backend.batch_set_v1(wanted, slots(0, 1)), [True] * 2)
        node.kill()
        for _ in range(8):
            self.assertEqual(backend.batch_get_v1(wanted, slots(2, 3)), [False] * 2)
            self.assertEqual(backend.batch_set_v1(chain(17, 2), slots(0, 1)), [False] * 2)
            self.assertEqual(backend.batch_exists(wanted), 0)
        node.start()
        self.wait_until(lambda: backend.batch_set_v1(wanted, slots(0, 1)) == [True] * 2)
        self.assertEqual(backend.batch_get_v1(wanted, slots(4, 5)), [True] * 2)

    def test_a_node_that_hangs_is_left_alone(self):
        node = Node("64MiB")
        self.addCleanup(node.end)
        backend = self.backend(host_pool(seed=1), endpoints=node.address, deadline_ms=200)
        wanted = chain(18, 2)
        backend.batch_set_v1(wanted, slots(0, 1))
        node.pause()
        with self.lines() as lines:
            for _ in range(12):
                self.assertEqual(backend.batch_exists(wanted), 0)
        node.resume()
        self.assertEqual(len([line for line in lines if "leaving it alone" in line]), 1, lines)
        self.wait_until(lambda: backend.batch_exists(wanted) == 2)

    def test_a_model_that_nobody_knows_turns_it_off(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "tiny"
        shutil.copytree(MODELS / "tiny", path, ignore=shutil.ignore_patterns("*.safetensors"))
        publish(model_path=str(path))
        with self.lines() as lines:
            backend = self.backend(host_pool())
        self.assertIn("has no weights", "\n".join(lines))
        self.assert_does_nothing(backend)

    def test_an_exception_inside_ends_it_and_not_the_engine(self):
        pool = host_pool(seed=1)
        backend, wanted = self.backend(pool), chain(19, 1)
        pool.get_page_buffer_meta = lambda indices: 1 / 0
        with self.lines() as lines:
            self.assertEqual(backend.batch_get_v1(wanted, slots(0)), [False])
        self.assertIn("ZeroDivisionError", lines[0])
        self.assert_does_nothing(backend)

    def test_metrics_are_sglangs(self):
        backend, wanted = self.backend(host_pool(seed=1)), chain(20, 3)
        backend.batch_set_v1(wanted, slots(0, 1, 2))
        backend.batch_get_v1(wanted, slots(0, 1, 2))
        stats = backend.get_stats()
        self.assertEqual((stats.backup_pgs, stats.prefetch_pgs), ([3], [3]))
        self.assertTrue(stats.backup_bandwidth[0] > 0 and stats.prefetch_bandwidth[0] > 0)
        self.assertEqual(backend.get_stats().prefetch_pgs, [])

    def wait_until(self, true, tries=1200):
        for _ in range(tries):
            if true():
                return
            time.sleep(0.05)
        self.fail("it did not come back")


class Interface(unittest.TestCase):
    def test_the_interface_is_the_one_that_is_known(self):
        from larder_kv.sglang import LarderStorage, compatibility
        from sglang.srt.mem_cache import hicache_storage

        self.assertTrue(issubclass(LarderStorage, HiCacheStorage))
        self.assertEqual(LarderStorage.__abstractmethods__, frozenset())
        self.assertEqual(compatibility._lacking(hicache_storage), "")
        log = logging.getLogger("larder_kv.sglang")
        with self.assertLogs(log, "WARNING"):
            compatibility.check("9.9", hicache_storage, log)
        older = types.SimpleNamespace(**vars(hicache_storage))
        older.HiCacheStorage = type("Older", (), {"batch_exists": lambda self, keys: 0})
        with self.assertRaisesRegex(Exception, "another interface"):
            compatibility.check("9.9", older, log)
