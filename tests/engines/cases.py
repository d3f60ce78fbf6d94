#!/usr/bin/env python3
"""vLLM itself with LarderConnector: what one process stores another gets back, every byte equal, whatever happens between.

    tests/engines/run            what fits into the presubmit
    tests/engines/run --all      every case

Tokens of each engine are compared with those of an engine without Larder (float32, greedy), bytes of each loaded block
with what the first process had in its cache when it stored it.

**Control.** `test_a_connector_that_does_not_verify_is_found_out` spoils a byte after the connector has verified it, as if it
did not verify: bytes and tokens then differ. Shown for good on 2026-11-30: with the look at `outcomes` taken out of
`WorkerSide._loaded`, `test_a_flipped_byte_in_a_nodes_memory` fails, the tokens are others. So a green run means that wrong
bytes are noticed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import models
import recorder
import servers
import timed_result
from engine import BUILD, MODELS, Engine, import_once, transfer_config
from nodes import Node, Wire, free_port

CHUNK = 64  # tokens; two blocks of the engine's
ALL = os.environ.get("LARDER_ENGINES_ALL") == "1"
_shared = {}


def prompt(seed, length, vocabulary=500):
    return [random.Random(seed).randrange(3, vocabulary) for _ in range(1)] + [
        random.Random(f"{seed}/{at}").randrange(3, vocabulary) for at in range(1, length)
    ]


def shared(name):
    """Engines that several classes use, each started once."""
    if name not in _shared:
        makers = {
            "node": lambda: Node(),
            "reference": lambda: Engine("reference", "tiny"),
            "writer": lambda: Engine("writer", "tiny", config(shared("node"))),
            "reader": lambda: Engine("reader", "tiny", config(shared("node"))),
            "sync": lambda: Engine("sync", "tiny", config(shared("node"), load_async=False, lookup_async=False)),
        }
        _shared[name] = makers[name]()
    return _shared[name]


def config(node, **extra):
    return transfer_config(node.address if isinstance(node, Node) else node, **{"chunk_tokens": CHUNK, **extra})


def tearDownModule():  # noqa: N802 (unittest's name)
    for name in sorted(_shared, key="node".__eq__):
        made = _shared.pop(name)
        made.end() if isinstance(made, Node) else made.close()


def expected_hit(length, chunk=CHUNK, block=32):
    return min((length - 1) // block * block, length // chunk * chunk)


class EngineCase(unittest.TestCase):
    maxDiff = None

    def engine(self, name, model="tiny", *arguments, **named):
        made = Engine(name, model, *arguments, **named)
        self.addCleanup(made.close)
        return made

    def node(self, *arguments):
        made = Node(*arguments)
        self.addCleanup(made.end)
        return made

    def reference(self, prompts, **named):
        return [tokens for tokens, _ in shared("reference").generate(prompts, **named)]

    def store(self, engine, prompts, **named):
        """Runs prompts one by one, and waits until their blocks are in Larder."""
        outputs = [engine.generate([each], **named)[0] for each in prompts]
        engine.call("settle")
        return outputs

    def assert_bytes_equal(self, *engines, at_least=1):
        stored, compared = {}, 0
        for each in engines:
            for place, digests in recorder.read(each.records)[0].items():
                stored.setdefault(place, set()).update(digests)
        for each in engines:
            for place, digests in recorder.read(each.records)[1].items():
                self.assertIn(place, stored)
                self.assertLessEqual(
                    digests, stored[place], f"{each.log.stem} loaded other bytes than were stored at {place}"
                )
                compared += 1
        self.assertGreaterEqual(compared, at_least)


class Hits(EngineCase):
    """Case 1."""

    LENGTHS = (63, 64, 65, 127, 128, 129, 191, 192, 193, 600)

    def test_another_process_gets_the_same_bytes_and_tokens(self):
        for each in ("reference", "writer", "reader", "sync"):
            shared(each)
        prompts = [prompt(f"length {length}", length) for length in self.LENGTHS]
        wanted = self.reference(prompts)
        self.assertEqual([(tokens, 0) for tokens in wanted], self.store(shared("writer"), prompts))
        hits = [expected_hit(length) for length in self.LENGTHS]
        self.assertEqual([hits[at] for at in range(9)], [0, 32, 64, 64, 96, 128, 128, 160, 192])
        for name in ("reader", "sync"):
            expired = shared("node").metric("larder_pins_expired_total")
            got = [shared(name).generate([each])[0] for each in prompts]
            self.assertEqual(got, list(zip(wanted, hits, strict=True)), name)
            end = time.monotonic() + 10
            while shared("node").metric('larder_pins{kind="soft"}') and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(shared("node").metric('larder_pins{kind="soft"}'), 0, "pins are left behind")
            self.assertEqual(shared("node").metric("larder_pins_expired_total"), expired)
        self.assert_bytes_equal(shared("writer"), shared("reader"), shared("sync"), at_least=40)

    def test_prompts_that_part_ways_in_mid_block(self):
        for name in ("reader", "sync"):
            common = prompt(f"common {name}", 150)
            first, second = common + prompt("one", 100), common + prompt("two", 100)
            self.store(shared("writer"), [first])
            wanted = self.reference([second])[0]
            self.assertEqual(shared(name).generate([second])[0], (wanted, 128), name)

    def test_several_requests_at_once(self):
        prompts = [prompt(f"several {at}", 200 + 30 * at) for at in range(6)]
        wanted = self.reference(prompts)
        self.store(shared("writer"), prompts)
        for name in ("reader", "sync"):
            got = shared(name).generate(prompts)
            self.assertEqual(
                got, [(tokens, expected_hit(len(each))) for tokens, each in zip(wanted, prompts, strict=True)], name
            )

    def test_the_engines_own_cache_and_chunked_prefill(self):
        options = {"enable_prefix_caching": True, "max_num_batched_tokens": 128, "enable_chunked_prefill": True}
        cold = self.engine("cached-cold", "tiny", config(shared("node"), tenant="cached"), **options)
        warm = self.engine("cached-warm", "tiny", config(shared("node"), tenant="cached"), **options)
        whole = prompt("cached", 600)
        wanted = self.reference([whole[:100], whole])
        self.assertEqual(self.store(cold, [whole])[0], (wanted[1], 0))
        self.assertEqual(warm.generate([whole[:100]])[0], (wanted[0], 64))
        before = warm.call("counters")["load_tokens"]
        # 96 tokens are the engine's own: block 2 lies in mid-chunk and must be left alone.
        self.assertEqual(warm.generate([whole])[0], (wanted[1], 576))
        self.assertEqual(warm.call("counters")["load_tokens"] - before, 576 - 96)
        self.assert_bytes_equal(cold, warm)


class Corruption(EngineCase):
    """Case 2."""

    def test_a_flipped_byte_in_a_nodes_memory(self):
        for name in ("reader", "sync"):
            whole = prompt(f"flip {name}", 300)
            wanted = self.reference([whole])[0]
            self.store(shared("writer"), [whole])
            self.assertGreater(shared("node").flip_byte(shared("writer").call("hook", "sample")), 0)
            before = shared(name).call("counters").get("load_chunks_bad", 0)
            self.assertEqual(
                shared(name).generate([whole])[0][0], wanted, name
            )  # and it ends: it is not asked for for ever
            self.assertGreater(shared(name).call("counters")["load_chunks_bad"], before)
        self.assert_bytes_equal(shared("writer"), shared("reader"), shared("sync"))

    def test_a_flipped_byte_on_the_wire(self):
        wire = Wire()
        self.addCleanup(wire.end)
        target = free_port()
        node = self.node(
            "256MiB",
            "--data-listen",
            f"127.0.0.1:{target}",
            "--node-id",
            "n",
            "--shm",
            "false",
            "--peers",
            f"n@127.0.0.1:{wire.port}",
        )
        wire.begin(target)
        engine = self.engine("wire", "tiny", config(f"127.0.0.1:{wire.port}"), environment={"LARDER_TRANSPORT": "tcp"})
        del node
        whole = prompt("wire", 500)
        wanted = self.reference([whole])[0]
        self.assertEqual(self.store(engine, [whole])[0], (wanted, 0))
        self.assertEqual(engine.generate([whole])[0], (wanted, expected_hit(500)))
        wire.flip(True)
        self.assertEqual(engine.generate([whole])[0][0], wanted)
        self.assertGreater(wire.flipped, 0)
        self.assertGreater(engine.call("counters")["load_chunks_bad"], 0)
        wire.flip(False)
        self.assertEqual(engine.generate([whole])[0], (wanted, expected_hit(500)))

    def test_a_connector_that_does_not_verify_is_found_out(self):
        engine = self.engine("unverified", "tiny", config(shared("node")))
        prompts = [prompt(f"unverified {at}", 300) for at in range(4)]
        wanted = self.reference(prompts)
        self.store(shared("writer"), prompts)
        engine.call("hook", "spoil_loaded", True)
        got = [engine.generate([each])[0][0] for each in prompts]
        self.assertNotEqual(got, wanted)
        with self.assertRaises(AssertionError):
            self.assert_bytes_equal(shared("writer"), engine)


class Failures(EngineCase):
    """Case 6: a node that dies, stops, comes back empty, is full. The engine serves on."""

    def test_a_node_that_fails_in_mid_load(self):
        node = self.node()
        asynchronous = self.engine("failing", "tiny", config(node))
        synchronous = self.engine("failing-sync", "tiny", config(node, load_async=False))
        whole = [prompt(f"failing {at}", 400) for at in range(3)]
        wanted = self.reference(whole)
        self.store(asynchronous, whole)
        for engine in (asynchronous, synchronous):
            self.assert_comes_back(engine, whole, wanted)
            engine.call("hook", "signal_before_load", node.process.pid, signal.SIGSTOP)
            begin = time.monotonic()
            self.assertEqual(engine.generate(whole[:1])[0][0], wanted[0])  # stopped
            self.assertLess(time.monotonic() - begin, 60)
            self.assertGreater(engine.call("counters")["load_chunks_bad"], 0)
            self.assertEqual(engine.generate(whole[1:2])[0][0], wanted[1])  # still stopped
            node.resume()
        for engine in (asynchronous, synchronous):
            self.assert_comes_back(engine, whole, wanted)
            engine.call("hook", "signal_before_load", node.process.pid, signal.SIGKILL)
            self.assertEqual([tokens for tokens, _ in engine.generate(whole)], wanted)  # dead
            node.process.wait(60)
            self.assertEqual([tokens for tokens, _ in engine.generate(whole)], wanted)  # gone
            node.start()  # empty
            self.assert_comes_back(engine, whole, wanted)

    def assert_comes_back(self, engine, prompts, wanted):
        """A node that was down is left alone for a while: until then everything is computed, then stored, then hit."""
        hits = [(tokens, expected_hit(len(each))) for tokens, each in zip(wanted, prompts, strict=True)]
        end = time.monotonic() + 60
        while True:
            got = self.store(engine, prompts)
            self.assertEqual([tokens for tokens, _ in got], wanted)
            if got == hits:
                return
            self.assertLess(time.monotonic(), end, "it is not used again")
            time.sleep(0.5)

    def test_a_node_that_is_full(self):
        node = self.node("4MiB")
        engine = self.engine("full", "tiny", config(node))
        prompts = [prompt(f"full {at}", 600) for at in range(8)]
        wanted = self.reference(prompts)
        for _ in range(2):
            self.assertEqual([tokens for tokens, _ in self.store(engine, prompts)], wanted)

    def test_no_node_at_all_and_nonsense_in_the_configuration(self):
        absent = f"127.0.0.1:{free_port()}"
        engine = self.engine("absent", "tiny", config(absent, endpoint="x", load_asynch=True))
        whole = prompt("absent", 300)
        self.assertEqual(engine.generate([whole])[0], (self.reference([whole])[0], 0))
        self.assertIn(f"no node answers at {absent}", engine.text())
        self.assertIn('"endpoint" is not known and ignored; did you mean "endpoints"?', engine.text())
        self.assertIn('"load_asynch" is not known and ignored; did you mean "load_async"?', engine.text())


class Preemption(EngineCase):
    """Case 5."""

    def test_four_requests_in_a_tiny_cache(self):
        prompts = [prompt(f"preempt {at}", 200) for at in range(4)]
        options = {"kv_cache_memory_bytes": 20 * 65536, "max_model_len": 512}
        plain = self.engine("preempt-plain", "tiny", None, **options)
        wanted = [tokens for tokens, _ in plain.generate(prompts, max_tokens=100)]
        plain.close()
        self.assertEqual(self.reference(prompts, max_tokens=100), wanted)
        for mode in (True, False):
            engine = self.engine(
                f"preempt-{mode}",
                "tiny",
                config(shared("node"), tenant=f"preempt {mode}", load_async=mode, save_decode_cache=True),
                **options,
            )
            for _ in range(3):
                self.assertEqual([tokens for tokens, _ in engine.generate(prompts, max_tokens=100)], wanted, mode)
            self.assertGreater(engine.call("counters")["load_tokens"], 0)
            reader = self.engine(
                f"preempt-reader-{mode}", "tiny", config(shared("node"), tenant=f"preempt {mode}", load_async=mode)
            )
            self.assertEqual([reader.generate([each], max_tokens=100)[0][0] for each in prompts], wanted, mode)


class Roles(EngineCase):
    """Case 4: prefill and decode at the same time."""

    def test_decode_waits_for_prefill(self):
        node = self.node()
        prefill = self.engine("prefill", "tiny", config(node, role="kv_producer"))
        for mode in (True, False):
            decode = self.engine(f"decode-{mode}", "tiny", config(node, role="kv_consumer", load_async=mode))
            decode.ready()
            for at in range(3):
                whole = prompt(f"roles {mode} {at}", 450 + at)
                wanted = self.reference([whole])[0]
                decode.begin("generate", [whole], params={"larder_wait_ms": 60000})
                prefill.begin("generate", [whole], max_tokens=1)
                self.assertEqual(prefill.end()[0][0][0], wanted[:1])
                prefill.call("settle")
                self.assertEqual(decode.end()[0][0], (wanted, expected_hit(len(whole))))
            self.assertEqual(decode.call("counters").get("stores", 0), 0)
            self.assert_bytes_equal(prefill, decode)
            decode.close()
        self.assertEqual(prefill.call("counters").get("loads", 0), 0)


class Identity(EngineCase):
    """Case 3: never a hit in a cache of something else."""

    def variant(self, name, wanted_hit, model="tiny", tenant=None, **options):
        extra = {"tenant": tenant} if tenant else {}
        engine = self.engine(f"identity-{name}", model, config(shared("node"), **extra), **options)
        whole = prompt("identity", 300)
        tokens, cached = engine.generate([whole])[0]
        self.assertEqual(cached, wanted_hit, name)
        engine.close()
        return tokens

    def test_foreign_caches_are_never_hit(self):
        whole = prompt("identity", 300)
        wanted = self.reference([whole])[0]
        folder = BUILD / "models/changing"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(MODELS / "tiny", folder)
        self.store(shared("writer"), [whole])
        self.assertEqual(self.variant("same-weights-elsewhere", expected_hit(300), "changing"), wanted)
        models.make(folder, "tiny", seed=8)
        self.assertNotEqual(self.variant("other-weights-same-place", 0, "changing"), wanted)
        self.variant("tenant", 0, tenant="another")
        if ALL:
            self.variant("dtype", 0, dtype="bfloat16")
            self.variant("block-size", 0, block_size=64)
            self.variant("rope", 0, hf_overrides={"rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}})

    def test_salts_keep_requests_apart(self):
        whole = prompt("salt", 300)
        engine = shared("writer")
        self.assertEqual(self.store(engine, [whole], salt="a")[0][1], 0)
        for salt, hit in ((None, 0), ("b", 0), ("a", expected_hit(300))):
            got = shared("reader").generate([whole], salt=salt)[0]
            self.assertEqual(got, (self.reference([whole])[0], hit), salt)
            shared("reader").call("settle")


class Adapters(EngineCase):
    """Case 3, LoRA."""

    def test_adapters_are_told_apart_by_their_weights(self):
        one, two = (models.make_lora(BUILD / f"models/lora-{seed}", MODELS / "tiny", seed, rank=8) for seed in (1, 2))
        whole, options = prompt("lora", 300), {"enable_lora": True, "max_lora_rank": 8}
        bare = self.engine("lora-bare", "tiny", **options)
        plain = bare.generate([whole])[0][0]
        wanted = {each: bare.generate([whole], lora=(each.name, at, str(each)))[0][0] for at, each in ((1, one), (2, two))}
        bare.close()
        self.assertEqual(len({tuple(plain), *map(tuple, wanted.values())}), 3)
        writer = self.engine("lora-writer", "tiny", config(shared("node")), **options)
        # Both adapters go by one name and number, as after a retraining.
        self.assertEqual(self.store(writer, [whole], lora=("same", 1, str(one)))[0], (wanted[one], 0))
        self.assertEqual(writer.generate([whole])[0], (plain, 0))
        self.assertEqual(writer.generate([whole], lora=("same", 1, str(one)))[0], (wanted[one], expected_hit(300)))
        writer.close()
        other = self.engine("lora-other", "tiny", config(shared("node")), **options)
        self.assertEqual(self.store(other, [whole], lora=("same", 1, str(two)))[0], (wanted[two], 0))
        self.assertEqual(other.generate([whole], lora=("same", 1, str(two)))[0], (wanted[two], expected_hit(300)))
        other.close()


class Cold(EngineCase):
    """A node with less memory than blocks."""

    def test_blocks_on_ssd_come_up_while_a_request_waits(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        flags = ("--ssd", f"{folder.name}/ssd", "--ssd-bytes", "256MiB", "--ssd-segment-bytes", "16MiB")
        node = self.node("16MiB", *flags, "--ssd-promote-after", "0")
        cold, busy = prompt("cold", 900), [prompt(f"busy{at}", 900) for at in range(12)]
        writer = self.engine("cold-writer", "tiny", config(node))
        for each in [cold, *busy]:
            self.store(writer, [each])
            time.sleep(0.3)  # what the disk has no time for is dropped
        writer.close()
        reader = self.engine("cold-reader", "tiny", config(node), max_num_seqs=1)
        ahead = prompt("ahead", 900)
        outputs = reader.generate([ahead, cold])  # the second waits until the first has ended
        self.assertEqual([tokens for tokens, _ in outputs], self.reference([ahead, cold]))
        counters = reader.call("counters")
        self.assertEqual([cached for _, cached in outputs], [0, expected_hit(900)])
        self.assertEqual(counters.get("prefetches"), 900 // CHUNK, counters)
        self.assert_bytes_equal(writer, reader)


class Reset(EngineCase):
    """Case 9."""

    def test_reset_clears_this_namespace_only(self):
        one = self.engine("reset-one", "tiny", config(shared("node"), tenant="one"))
        two = self.engine("reset-two", "tiny", config(shared("node"), tenant="two"))
        other = self.engine("reset-other", "tiny", config(shared("node"), tenant="one"))
        whole = prompt("reset", 300)
        wanted = self.reference([whole])[0]
        for engine in (one, two):
            self.store(engine, [whole])
            self.assertEqual(engine.generate([whole])[0], (wanted, expected_hit(300)))
        self.assertEqual(other.generate([whole])[0], (wanted, expected_hit(300)))
        self.assertTrue(one.call("reset"))
        self.assertEqual(other.generate([whole])[0], (wanted, 0))
        self.assertEqual(self.store(one, [whole])[0], (wanted, 0))
        self.assertEqual(one.generate([whole])[0], (wanted, expected_hit(300)))  # under the new epoch
        self.assertEqual(two.generate([whole])[0], (wanted, expected_hit(300)))


class Shards(EngineCase):
    """Case 7: tensor parallelism is not in the identity."""

    def test_two_ranks_store_and_one_or_two_get_it_back(self):
        two = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
        threads = {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_WORKER_MULTIPROC_METHOD": "fork"}
        prompts = [prompt(f"shards {at}", 300) for at in range(3)]
        recorded = {"kv_connector_module_path": "recorded"}
        wanted = self.reference(prompts)
        writer = self.engine(
            "shards-writer", "tiny", config(shared("node"), tenant="shards") | recorded, threads, **two
        )
        self.assertEqual([tokens for tokens, _ in self.store(writer, prompts)], wanted)
        time.sleep(2)  # its workers are processes of their own; stores end within milliseconds
        writer.generate([prompt("shards last", 40)])
        hit = [(tokens, expected_hit(300)) for tokens in wanted]
        again = self.engine("shards-two", "tiny", config(shared("node"), tenant="shards") | recorded, threads, **two)
        self.assertEqual([again.generate([each])[0] for each in prompts], hit)
        self.assert_bytes_equal(writer, again)
        one = self.engine("shards-one", "tiny", config(shared("node"), tenant="shards"))
        self.assertEqual([one.generate([each])[0] for each in prompts], hit)


class OtherModels(EngineCase):
    """Case 8."""

    def test_sliding_windows(self):
        prompts = [prompt(f"window {length}", length) for length in (100, 300, 600, 601, 640, 641)]
        plain = self.engine("window-plain", "windowed")
        wanted = [plain.generate([each])[0][0] for each in prompts]
        plain.close()
        cold = self.engine("window-cold", "windowed", config(shared("node")))
        self.assertEqual([tokens for tokens, _ in self.store(cold, prompts)], wanted)
        for options in ({}, {"enable_prefix_caching": True}):
            warm = self.engine(
                f"window-warm-{len(options)}", "windowed", config(shared("node"), load_async=False), **options
            )
            got = [warm.generate([each])[0] for each in prompts]
            self.assertEqual(
                got, [(tokens, expected_hit(len(each))) for tokens, each in zip(wanted, prompts, strict=True)]
            )
            self.assert_bytes_equal(cold, warm)
        whole = prompt("window bad", 500)
        plain = self.engine("window-plain-2", "windowed")
        right = plain.generate([whole])[0][0]
        self.store(cold, [whole])
        self.assertGreater(shared("node").flip_byte(cold.call("hook", "sample")), 0)
        self.assertEqual(cold.generate([whole])[0][0], right)

    def test_a_draft_model(self):
        speculative = {
            "speculative_config": {"method": "draft_model", "model": str(MODELS / "tiny"), "num_speculative_tokens": 3}
        }
        prompts = [prompt(f"draft {at}", 300) for at in range(3)]
        wanted = self.reference(prompts, max_tokens=24)
        cold = self.engine("draft-cold", "tiny", config(shared("node")), **speculative)
        self.assertEqual([tokens for tokens, _ in self.store(cold, prompts, max_tokens=24)], wanted)
        warm = self.engine("draft-warm", "tiny", config(shared("node")), **speculative)
        got = [warm.generate([each], max_tokens=24)[0] for each in prompts]
        self.assertEqual([tokens for tokens, _ in got], wanted)
        self.assertTrue(all(cached == expected_hit(300) for _, cached in got), got)
        self.assert_bytes_equal(cold, warm)


class Together(EngineCase):
    def test_two_connectors_inside_multiconnector(self):
        children = [config(shared("node"), tenant=tenant) for tenant in ("multi a", "multi b")]
        both = {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"connectors": children},
        }
        engine = self.engine("multi", "tiny", both)
        reader = self.engine("multi-reader", "tiny", children[1])
        whole = prompt("multi", 300)
        wanted = self.reference([whole])[0]
        self.assertEqual(engine.generate([whole])[0], (wanted, 0))
        for each in (engine, engine, reader):
            self.assertEqual(each.generate([whole])[0], (wanted, expected_hit(300)))


class Served(EngineCase):
    """Case 10."""

    def test_chats_through_a_proxy(self):
        node = self.node()
        made = [
            servers.vllm_server("server-prefill", "tiny", config(node, role="kv_producer")),
            servers.vllm_server("server-decode", "tiny", config(node, role="kv_consumer")),
        ]
        for each in made:
            self.addCleanup(each.end)
        prefill, decode = (each.ready() for each in made)
        front = servers.proxy([prefill], [decode])
        self.addCleanup(front.end)
        front.ready()
        done = subprocess.run(
            [sys.executable, "chats.py", front.url, "m", "20", "3"],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        played = json.loads(done.stdout)
        self.assertEqual(len(played), 60)
        wanted = self.reference([prompt for prompt, _ in played])
        self.assertEqual([answer for _, answer in played], wanted)
        asked = sum(len(prompt) for prompt, _ in played)
        self.assertEqual(decode.metric("vllm:external_prefix_cache_queries_total"), asked)
        self.assertGreater(decode.metric("vllm:external_prefix_cache_hits_total"), asked / 2)
        self.assertGreater(decode.metric("vllm:larder_load_tokens_total"), asked / 2)
        self.assertGreater(prefill.metric("vllm:larder_store_chunks_total"), 0)


# What fits into the presubmit; the other cases belong to --all.
DEFAULT = ("Hits", "Corruption", "Failures", "Identity", "Reset", "Preemption", "Roles")


def main(names):
    if names == ["--all"]:
        os.environ["LARDER_ENGINES_ALL"] = "1"
        globals()["ALL"] = True
        names = [
            name
            for name, kind in globals().items()
            if isinstance(kind, type) and issubclass(kind, EngineCase) and kind is not EngineCase
        ]
    suite = unittest.TestSuite(
        [unittest.defaultTestLoader.loadTestsFromName(name, sys.modules[__name__]) for name in names or DEFAULT]
    )
    import_once()
    import kv_events_test
    import parts_test  # it brings torch in: only now is the environment what torch must see

    suite.addTest(unittest.defaultTestLoader.loadTestsFromModule(kv_events_test))
    suite.addTest(unittest.defaultTestLoader.loadTestsFromModule(parts_test))

    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=timed_result.Result).run(suite)
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
