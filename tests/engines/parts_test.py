"""The connector's parts that need no engine: which blocks make a chunk, what is usable, when to leave a cluster alone."""

import logging
import pathlib
import random
import tempfile
import types
import unittest

from larder_kv import Retention
from larder_kv.engine import weights
from larder_kv.engine.breaker import Breaker
from larder_kv.engine.model import UnservedError
from larder_kv.vllm import options
from larder_kv.vllm.geometry import Group, plan
from larder_kv.vllm.pace import Pace
from larder_kv.vllm.requests import RequestState
from larder_kv.vllm.scheduler import SchedulerSide
from larder_kv.vllm.turns import retention_of


class EngineHashes(unittest.TestCase):
    """What Larder's keys lean on: the engine's block hashes tell apart what tokens alone do not."""

    def hashes(self, **named):
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.request import Request

        hash_fn = get_hash_fn_by_name("sha256")
        kv_cache_utils.init_none_hash(hash_fn)
        hasher = kv_cache_utils.get_request_block_hasher(32, hash_fn)
        sampling = SamplingParams(max_tokens=1)
        return list(Request("r", list(range(160)), sampling, None, block_hasher=hasher, **named).block_hashes)

    def test_salts_and_images_are_in_the_hash(self):
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        def image(name):
            place = PlaceholderRange(offset=70, length=20)
            return {"mm_features": [MultiModalFeatureSpec(None, "image", name, place, mm_hash=name)]}

        plain, cat, dog = self.hashes(), self.hashes(**image("cat")), self.hashes(**image("dog"))
        self.assertEqual(len(plain), 5)
        self.assertEqual(self.hashes(**image("cat")), cat)
        # Up to the image's block they are one prefix; from there on they never meet again.
        self.assertTrue(plain[:2] == cat[:2] == dog[:2])
        for at in range(2, 5):
            self.assertEqual(len({plain[at], cat[at], dog[at]}), 3, at)
        salted = self.hashes(cache_salt="a"), self.hashes(cache_salt="b")
        for at in range(5):
            self.assertEqual(len({plain[at], salted[0][at], salted[1][at]}), 3, at)


class Geometry(unittest.TestCase):
    def test_chunks_reach_a_mebibyte_and_end_at_256_tokens(self):
        for block, layers, heads, cell, wanted in (
            (32, 8, 4, 512, 64),
            (16, 8, 4, 512, 64),
            (32, 4, 2, 256, 256),
            (16, 80, 8, 512, 16),
            (512, 4, 2, 256, 512),
            (48, 4, 2, 256, 192),
        ):
            self.assertEqual(plan([Group(0, layers, heads, block, cell)], block).chunk_tokens, wanted)
        self.assertEqual(plan([Group(0, 8, 4, 32, 512)], 32, 96).chunk_tokens, 96)
        with self.assertRaisesRegex(UnservedError, "multiple"):
            plan([Group(0, 8, 4, 32, 512)], 32, 48)

    def test_head_groups_divide_every_groups_heads(self):
        for heads, wanted in (((4,), 4), ((8, 4), 4), ((12,), 4), ((1,), 1), ((6, 10), 2)):
            self.assertEqual(
                plan([Group(at, 2, each, 16, 64) for at, each in enumerate(heads)], 16).head_groups, wanted
            )

    def test_keys_are_last_hashes_and_the_others_ride_along(self):
        geometry = plan([Group(0, 8, 4, 32, 512)], 32, 64)
        hashes = [bytes([at]) * 32 for at in range(7)]
        self.assertEqual(geometry.whole_chunks(7), 3)
        self.assertEqual(geometry.keys(hashes, 1, 3), hashes[3] + hashes[5])
        self.assertEqual(geometry.constituents(hashes, 1, 2), hashes[2] + hashes[3])
        self.assertIsNone(plan([Group(0, 8, 4, 32, 512)], 32, 32).constituents(hashes, 0, 1))

    def test_full_attention_needs_every_chunk_that_is_not_local(self):
        geometry = plan([Group(0, 8, 4, 32, 512)], 32, 64)
        for row, local, most, wanted in (
            ("1111", 0, 1000, 256),
            ("1101", 0, 1000, 128),
            ("0111", 0, 1000, 0),
            ("0111", 64, 1000, 256),
            ("0111", 96, 1000, 256),
            ("0111", 32, 1000, 0),
            ("1111", 0, 224, 224),
            ("1111", 256, 1000, 0),
            ("", 0, 1000, 0),
            ("1101", 128, 999, 0),
        ):
            present = [[each == "1" for each in row]]
            self.assertEqual(geometry.usable_tokens(present, local, most), wanted, (row, local, most))

    def test_windows_need_their_last_chunks(self):
        geometry = plan([Group(0, 2, 2, 32, 256), Group(1, 2, 2, 32, 256, window_tokens=65)], 32, 64)
        for full, window, wanted in (
            ("1111", "0001", 256),
            ("1111", "0010", 192),
            ("1111", "1000", 64),
            ("1111", "0000", 0),
            ("0111", "1111", 0),
            ("1100", "1111", 128),
        ):
            present = [[each == "1" for each in row] for row in (full, window)]
            self.assertEqual(geometry.usable_tokens(present, 0, 1000), wanted, (full, window))
        self.assertEqual(geometry.needed(geometry.groups[1], 0, 224), range(2, 4))  # tokens 160..223

    def test_what_is_usable_is_there(self):
        """Against the definition, token by token."""
        seed = random.randrange(1 << 30)
        dice = random.Random(seed)
        for _ in range(300):
            groups = [
                Group(at, 1, 1, 16, 8, window_tokens=dice.choice((0, 1, 16, 17, 40, 100)))
                for at in range(dice.randint(1, 3))
            ]
            geometry = plan(groups, 16, dice.choice((16, 32, 64)))
            present = [[dice.random() < 0.7 for _ in range(6)] for _ in groups]
            local = dice.randrange(0, 12) * 16
            most = dice.randrange(0, 30) * 16

            def fine(tokens, geometry=geometry, present=present, local=local):
                return all(
                    row[token // geometry.chunk_tokens]
                    for group, row in zip(geometry.groups, present, strict=True)
                    for token in range(max(local, group.first_token(tokens)), tokens)
                )

            ends = {min(count * geometry.chunk_tokens, most) for count in range(1, 7)}
            wanted = max((end for end in ends if end > local and fine(end)), default=0)
            self.assertEqual(geometry.usable_tokens(present, local, most), wanted, f"seed {seed}")


def scheduler_side(client=None, space=None):
    """Without a cluster and without an engine."""
    link = types.SimpleNamespace(client=client, space=lambda key: space, opened=lambda epoch: [], where="nowhere")
    geometry = plan([Group(0, 8, 4, 32, 512)], 32)
    return SchedulerSide(geometry, options.Options(), link, "kv_both", 1, False, logging.getLogger("parts"))


class Requests(unittest.TestCase):
    def test_blocks_of_old_weights_are_not_stored_under_the_new_name(self):
        side, other = scheduler_side(), scheduler_side()
        for name, admitted in (("running", True), ("waiting", False)):
            request = types.SimpleNamespace(request_id=name, block_hashes=[])
            side._requests[name] = RequestState(request, "", admitted=admitted)
        for each in (side, other):
            self.assertEqual(each._epoch, 0)
            each.reset()
        self.assertEqual([state.stale for state in side._requests.values()], [True, False])
        self.assertIsNone(side._store_job(side._requests["running"], 16, None))
        self.assertNotEqual(side._epoch, other._epoch)  # with other weights, for all anybody knows

    def test_a_request_may_not_wait_for_ever(self):
        side = scheduler_side()
        for asked, wanted in ((250, 250.0), (1e300, 60000.0), (float("inf"), 0.0), (float("nan"), 0.0), (True, 0.0), (-1, 0.0)):
            request = types.SimpleNamespace(kv_transfer_params={"larder_wait_ms": asked})
            self.assertEqual(side._wait_ms(RequestState(request, "")), wanted, asked)


class Pinning(unittest.TestCase):
    """What was offered stays where it is until it has been loaded; a cluster that answers when it is told to."""

    def setUp(self):
        self.asked, self.answers, self.released = [], [], []
        queue = types.SimpleNamespace(poll=self.poll)
        client = types.SimpleNamespace(queue=lambda: queue, release=self.released.append)
        space = types.SimpleNamespace(submit_match=self.match, touch=lambda *_, **__: None)
        self.side = scheduler_side(client, space)

    def match(self, queue, token, keys, *, pin_ms, **_):
        self.assertGreater(pin_ms, 5000)  # the deadline of a load
        self.asked.append((token, len(keys) // 32))

    def poll(self, most, wait_ms):
        taken, self.answers = self.answers, []
        return taken

    def answer(self, pin):
        token, chunks = self.asked.pop(0)
        result = types.SimpleNamespace(pin=pin, presence=[0] * chunks, estimates_us=[])
        self.answers.append(types.SimpleNamespace(token=token, result=result))

    def begin(self, name):
        request = types.SimpleNamespace(
            request_id=name,
            block_hashes=[bytes([at] * 32) for at in range(32)],
            num_tokens=1025,
            num_prompt_tokens=1025,
            status=None,
        )
        self.side.begin(request)
        return request

    def test_a_load_keeps_its_pin_until_it_has_ended(self):
        request = self.begin("loaded")
        self.answer(pin=7)
        tokens, _ = self.side.offer(request, 0)
        self.assertEqual(tokens, 1024)
        self.side.allocated(request, (list(range(1, 33)),), tokens)
        self.assertEqual(self.released, [])
        done = types.SimpleNamespace(request="loaded", tokens=tokens, good=4, bad=0, took_ms=5, unreached=False)
        self.side.heard(types.SimpleNamespace(loads=[done], stores=[]))
        self.assertEqual(self.released, [7])
        self.side.finish(request)
        self.assertEqual(self.released, [7])

    def test_a_request_that_ends_lets_go_of_its_pin(self):
        request = self.begin("waiting")
        self.answer(pin=8)
        self.side.offer(request, 0)
        self.side.finish(request)
        self.assertEqual(self.released, [8])

    def test_an_answer_that_comes_too_late_is_let_go(self):
        request = self.begin("gone")
        self.side.finish(request)
        self.answer(pin=9)
        cached = types.SimpleNamespace(new_block_ids=[])
        self.side.step(
            types.SimpleNamespace(total_num_scheduled_tokens=0, scheduled_cached_reqs=cached, num_scheduled_tokens={})
        )
        self.assertEqual(self.released, [9])

    def test_new_weights_let_go_of_old_pins(self):
        request = self.begin("old")
        self.answer(pin=10)
        self.side.offer(request, 0)
        self.side.reset()
        self.assertEqual(self.released, [10])


class Habits(unittest.TestCase):
    def test_breaker(self):
        breaker = Breaker(failures_max=2, pause_s=1, pause_max_s=3)
        breaker.failed(0)
        breaker.succeeded()
        breaker.failed(0)
        self.assertTrue(breaker.allows(0))
        breaker.failed(0)
        self.assertEqual([breaker.allows(at) for at in (0.5, 1.0, 1.5)], [False, True, False])  # one try
        breaker.failed(2)
        self.assertEqual([breaker.allows(at) for at in (3.9, 4.0)], [False, True])
        breaker.failed(4)
        self.assertEqual([breaker.allows(at) for at in (6.9, 7.0)], [False, True])
        breaker.succeeded()
        self.assertTrue(breaker.allows(7.1) and breaker.allows(7.1))

    def test_pace(self):
        pace = Pace()
        self.assertTrue(pace.worth_loading(4096))
        self.assertEqual(pace.deadline_ms(4096, 5000), 5000)
        pace.computed(10, 1000)  # decode says nothing
        pace.computed(1000, 500)
        self.assertEqual(pace.deadline_ms(4000, 5000), 3000)
        self.assertEqual(pace.deadline_ms(64, 5000), 1000)
        pace.loaded(1000, 2000)
        self.assertFalse(pace.worth_loading(1000))
        self.assertTrue(pace.worth_loading(64))
        for _ in range(200):
            pace.worth_loading(1000)
        self.assertTrue(pace.worth_loading(1000))  # it is tried again some day

    def test_what_would_come_later_than_computing_is_not_pulled(self):
        pace, slow = Pace(), [1, 1, 1, 900, 1]
        self.assertEqual(pace.tokens_in_time(0, 80, 16, lambda chunk: 1e9), 80)  # nothing is measured yet
        pace.computed(1000, 1000)  # a token a millisecond
        self.assertEqual(pace.tokens_in_time(0, 80, 16, lambda chunk: slow[chunk]), 48)
        self.assertEqual(pace.tokens_in_time(32, 80, 16, lambda chunk: slow[chunk]), 48)
        self.assertEqual(pace.tokens_in_time(0, 80, 16, lambda chunk: 0), 80)
        self.assertEqual(pace.tokens_in_time(0, 80, 16, lambda chunk: 100), 0)
        self.assertEqual(pace.tokens_in_time(0, 80, 16, lambda chunk: 70), 80)  # one wait for all of them
        self.assertEqual(pace.tokens_in_time(16, 40, 16, lambda chunk: 20), 40)  # ends within a chunk

    def test_what_is_expected_when_a_request_ends(self):
        def ended(status, output=(), **parameters):
            request = types.SimpleNamespace(
                status=types.SimpleNamespace(name=status), output_token_ids=list(output), kv_transfer_params=parameters
            )
            return retention_of(request, (7, 8))

        self.assertEqual(ended("FINISHED_STOPPED", [1, 2]), Retention.ENDED)
        self.assertEqual(ended("FINISHED_STOPPED", [1, 8, 2]), Retention.CONTINUES)
        self.assertEqual(ended("FINISHED_LENGTH_CAPPED", [8]), Retention.NONE)
        self.assertEqual(ended("FINISHED_ABORTED"), Retention.NONE)
        self.assertEqual(ended("FINISHED_ABORTED", larder_retention="never"), Retention.NEVER)
        self.assertEqual(ended("FINISHED_STOPPED", larder_retention="no such word"), Retention.ENDED)

    def test_options(self):
        chosen, warnings = options.parse({"endpoints": ["a:1", "b:2"], "chunk_token": 5, "zebra": 1, "deadline_ms": 7, "tool_call_tokens": [5]})
        self.assertEqual(chosen.tool_call_tokens, (5,))
        self.assertEqual((chosen.endpoints, chosen.deadline_ms), ("a:1,b:2", 7.0))
        self.assertIn('did you mean "chunk_tokens"?', warnings[0])
        self.assertIn("there are endpoints", warnings[1])
        for bad in (
            {"load_async": "yes"},
            {"chunk_tokens": -1},
            {"chunk_tokens": True},
            {"deadline_ms": 0},
            {"tenant": 3},
            {"tool_call_tokens": [1, "a"]},
        ):
            with self.assertRaises(ValueError):
                options.parse(bad)

    def test_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.safetensors"
            with self.assertRaises(FileNotFoundError):
                weights.digest(folder)
            path.write_bytes(b"a" * 1000)
            first = weights.digest(folder)
            self.assertEqual(weights.digest(folder), first)
            path.write_bytes(b"a" * 999 + b"b")
            self.assertNotEqual(weights.digest(folder), first)
            path.write_bytes(b"a" * 1000)
            self.assertEqual(weights.digest(folder), first)
            (pathlib.Path(folder) / "pytorch_model.bin").write_bytes(b"an older copy")
            self.assertEqual(weights.digest(folder), first)

    def test_the_scale_of_an_adapter_is_part_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "adapter_model.safetensors").write_bytes(b"a" * 1000)
            config = pathlib.Path(folder) / "adapter_config.json"
            config.write_text('{"r": 8, "lora_alpha": 16}')
            first = weights.adapter_digest(folder)
            self.assertEqual(weights.adapter_digest(folder), first)
            config.write_text('{"r": 8, "lora_alpha": 32}')
            self.assertNotEqual(weights.adapter_digest(folder), first)


if __name__ == "__main__":
    unittest.main()
