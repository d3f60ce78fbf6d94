"""A router that reads a node's KV events with vLLM's own classes knows exactly what `larderctl explain` finds there: live,
after losses, when it comes late, and over a restart."""

import hashlib
import json
import random
import subprocess
import tempfile
import time
import unittest

import larder_kv
import numpy as np
from engine import Engine, import_once, transfer_config
from nodes import BIN, CLEAN, PATIENCE_S, Node, free_port

IDENTITY = {
    "kind": "kv",
    "layers": 2,
    "kv_heads": 2,
    "head_groups": 2,
    "hash": "sha256",
    "block_tokens": 64,
    "engine_block_tokens": 16,
}
BLOCK_BYTES = 64 << 10
PER_BLOCK = 4  # engine blocks
END = (1 << 64) - 1


def digest(*what):
    return hashlib.sha256(repr(what).encode()).digest()


class Router:
    """Follows a node as vLLM's documentation tells routers to: subscribes, looks at the numbers, asks for what it missed."""

    def __init__(self, addresses, topic=b"kv@", listens=False, room=None):
        """addresses: as a node's report has them; what it listens at, if it does. room: for messages that it has not read."""
        import msgspec
        import zmq
        from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

        self._kinds = AllBlocksCleared, BlockRemoved, BlockStored
        self._decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.setsockopt(zmq.SUBSCRIBE, topic)
        self._live.setsockopt(zmq.RECONNECT_IVL, 10)
        if room:
            self._live.setsockopt(zmq.RCVHWM, room)
            self._live.setsockopt(zmq.RCVBUF, 4096)
        self._topic, self._addresses, self._asks = topic, addresses, not listens
        if listens:
            self._live.bind(self._endpoint("kv_events"))
        else:
            self._live.connect(self._endpoint("kv_events"))
        self.last, self.there, self.replays, self.clears = {}, {}, 0, 0
        self.block_sizes = set()
        if self._asks:
            self.replay(0)

    def _endpoint(self, name):
        address = self._addresses[name]
        return address if "://" in address else f"tcp://{address}"

    def close(self):
        self._context.destroy(linger=0)

    def take(self, topic, sequence, payload):
        cleared, removed, stored = self._kinds
        if not topic.startswith(self._topic) or sequence <= self.last.get(topic, -1):
            return
        self.last[topic] = sequence
        there = self.there.setdefault(topic, set())
        for event in self._decoder.decode(payload).events:
            if isinstance(event, cleared):
                there.clear()
                self.clears += 1
                continue
            named = {(event.medium, event.group_idx, each) for each in event.block_hashes}
            if isinstance(event, removed):
                there -= named
            else:
                assert isinstance(event, stored)
                if event.medium in ("CPU", "STORAGE"):  # a node's
                    assert event.token_ids == [] and event.parent_block_hash is None
                self.block_sizes.add(event.block_size)
                there |= named

    def replay(self, first):
        import zmq

        self.replays += 1
        socket = self._context.socket(zmq.DEALER)
        socket.connect(self._endpoint("kv_events_replay"))
        socket.send_multipart([b"", first.to_bytes(8, "big")])
        while socket.poll(PATIENCE_S * 1000):
            empty, topic, number, payload = socket.recv_multipart()
            assert empty == b""
            if int.from_bytes(number, "big") == END:
                assert (topic, payload) == (b"", b"")
                break
            self.take(topic, int.from_bytes(number, "big"), payload)
        else:
            raise AssertionError("the replay does not end")
        socket.close(linger=0)

    def follow(self, lose=0.0):
        """Takes what has come; loses a share of it."""
        while self._live.poll(20):
            topic, number, payload = self._live.recv_multipart()
            sequence, last = int.from_bytes(number, "big"), self.last.get(topic)
            if random.random() < lose:
                continue
            if self._asks and (last is None or sequence > last + 1):
                self.replay(0 if last is None else last + 1)
            self.take(topic, sequence, payload)

    def all(self):
        return set().union(*self.there.values())


class Engines(unittest.TestCase):
    """First here, since it forks: by then nothing in this process may have had a thread."""

    def test_what_a_node_publishes_is_what_its_engine_published(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        node = Node("64MiB", "--kv-events-listen", "127.0.0.1:0", "--kv-events-replay-listen", "127.0.0.1:0")
        self.addCleanup(node.end)
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"ipc://{folder.name}/live",
            "replay_endpoint": f"ipc://{folder.name}/replay",
            "topic": "kv@engine",
        }
        connector = transfer_config(node.address, chunk_tokens=64)
        engine = Engine("kv-events", "tiny", connector, enable_prefix_caching=True, kv_events_config=events)
        self.addCleanup(engine.close)
        lengths = (64, 200, 300, 500)
        for length in lengths:
            engine.generate([[random.Random(f"{length}/{at}").randrange(3, 500) for at in range(length)]])
        engine.call("settle")
        of_node = Router(node.report)
        self.addCleanup(of_node.close)
        of_engine = Router({"kv_events": events["endpoint"], "kv_events_replay": events["replay_endpoint"]})
        self.addCleanup(of_engine.close)
        chunks = sum(length // 64 for length in lengths)
        end = time.monotonic() + PATIENCE_S
        while len(of_node.all()) < 2 * chunks and time.monotonic() < end:
            of_node.follow()
        published = {each for medium, _, each in of_engine.all() if medium == "GPU"}
        kept = {each for medium, _, each in of_node.all() if medium == "CPU"}
        self.assertEqual(of_node.block_sizes, {32})
        self.assertEqual(len(kept), 2 * chunks)
        self.assertLessEqual(kept, published)


class Blocks:
    """Blocks of one namespace, and where the node has them by what `larderctl` says."""

    def __init__(self, node, **fields):
        self.identity = {**IDENTITY, **fields}
        self.node, self.hashes, self._constituents = node, [], {}
        self._client = larder_kv.Client(node.address, environment=False, deadline_ms=20000)
        self._space = self._client.namespace(self.identity)

    def close(self):
        self._client.close()

    def put(self, count, halves=False, group=0):
        for _ in range(count):
            number = len(self.hashes)
            constituents = [digest(self.identity, number, each) for each in range(self.identity["block_tokens"] // 16)]
            key = constituents[-1]
            self.hashes.append((key, group))
            self._constituents[key] = constituents
            data = np.frombuffer(random.Random(number).randbytes(BLOCK_BYTES), np.uint8).reshape(1, -1)
            for rectangle in [(0, 2, 0, 1), (0, 2, 1, 2)] if halves else [None]:
                part = data[:, : BLOCK_BYTES // 2] if halves else data
                self._space.put(
                    [key],
                    np.ascontiguousarray(part),
                    groups=[group],
                    rectangles=rectangle and [rectangle],
                    constituents=constituents,
                )

    def remove(self, numbers):
        for number in numbers:
            key, group = self.hashes[number]
            self._space.remove([key], groups=[group])

    def read(self, numbers):
        for number in numbers:
            key, group = self.hashes[number]
            self._space.get([key], np.empty((1, BLOCK_BYTES), np.uint8), groups=[group])

    def clear(self):
        self._space.clear()

    def truth(self):
        from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

        self._space.match([key for key, _ in self.hashes])  # a restarted node explains what somebody has opened
        out = set()
        for wanted in {group for _, group in self.hashes}:
            hashes = [key.hex() for key, group in self.hashes if group == wanted]
            fields = [text for name, value in self.identity.items() for text in ("--field", f"{name}={value}")]
            asked = ["--endpoints", self.node.address, "--json", "explain", "--group", str(wanted), *fields, "--hashes", "-"]
            done = subprocess.run(
                [BIN / "larderctl", *asked], input="\n".join(hashes), env=CLEAN, capture_output=True, text=True, check=False
            )
            assert done.returncode in (0, 1), done.stderr  # 1: some are not there
            for block in json.loads(done.stdout)["blocks"]:
                for tier, medium in (("ram", "CPU"), ("ssd", "STORAGE")):
                    parts = {
                        (layer, head)
                        for piece in block["pieces"]
                        if piece["tier"] == tier
                        for layer in range(*piece["layers"])
                        for head in range(*piece["heads"])
                    }
                    if len(parts) == 4:
                        for each in self._constituents[bytes.fromhex(block["hash"])]:
                            out.add((medium, wanted, maybe_convert_block_hash(each)))
        return out


class KvEvents(unittest.TestCase):
    def node(self, *flags, memory="16MiB"):
        live, replay = (f"127.0.0.1:{free_port()}" for _ in range(2))
        made = Node(memory, "--node-id", "n1", "--kv-events-listen", live, "--kv-events-replay-listen", replay, *flags)
        self.addCleanup(made.end)
        return made

    def ssd(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return ("--ssd", folder.name, "--ssd-bytes", "64MiB", "--ssd-segment-bytes", "4MiB")

    def made(self, kind, *arguments, **named):
        made = kind(*arguments, **named)
        self.addCleanup(made.close)
        return made

    def assert_exact(self, blocks, *routers, lose=0.0):
        """What moves in the background comes to rest; a router that lost the last message gets it again soon."""
        end = time.monotonic() + PATIENCE_S
        while True:
            for router in routers:
                router.follow(lose)
            truth = set().union(*(each.truth() for each in blocks))
            if all(router.all() == truth for router in routers):
                return truth
            if time.monotonic() > end:
                for router in routers:
                    missing, wrong = truth - router.all(), router.all() - truth
                    said = f"missing {sorted(missing)[:4]}, wrong {sorted(wrong)[:4]}"
                    self.assertEqual((len(missing), len(wrong)), (0, 0), said)

    def test_eviction_removal_and_clear(self):
        node = self.node()
        live, blocks = self.made(Router, node.report), self.made(Blocks, node)
        blocks.put(40)
        blocks.put(10, halves=True)
        blocks.put(5, group=1)
        truth = self.assert_exact([blocks], live)
        self.assertEqual(len(truth), 55 * PER_BLOCK)
        self.assertEqual(live.block_sizes, {16})
        blocks.put(400)  # more than memory holds
        blocks.remove(range(430, 440))
        truth = self.assert_exact([blocks], live, self.made(Router, node.report))
        self.assertGreater(len(truth), 100 * PER_BLOCK)
        self.assertLess(len(truth), 400 * PER_BLOCK)
        clears = live.clears
        blocks.clear()
        self.assertEqual(self.assert_exact([blocks], live, self.made(Router, node.report)), set())
        self.assertEqual(live.clears, clears + 1)
        blocks.put(3)
        self.assertEqual(len(self.assert_exact([blocks], live, self.made(Router, node.report))), 3 * PER_BLOCK)
        self.assertEqual(node.metric("larder_kv_event_unread_total"), 0)

    def test_tiers_and_a_restart_after_kill(self):
        node = self.node(*self.ssd(), "--ssd-promote-after", "1")
        live, blocks = self.made(Router, node.report), self.made(Blocks, node)
        blocks.put(500)
        blocks.put(40, halves=True)
        blocks.put(20, group=3)
        end = time.monotonic() + PATIENCE_S
        while node.metric("larder_ssd_pieces") < 250 and time.monotonic() < end:  # a slow disk lets blocks go
            blocks.put(20)
            time.sleep(0.1)
        blocks.read(range(100, 120))
        truth = self.assert_exact([blocks], live, self.made(Router, node.report))
        self.assertEqual({medium for medium, _, _ in truth}, {"CPU", "STORAGE"})
        node.kill()
        node.start()
        warm = self.assert_exact([blocks], live, self.made(Router, node.report))
        self.assertEqual({medium for medium, _, _ in warm}, {"STORAGE"})
        self.assertGreater(len(warm), 100 * PER_BLOCK)
        blocks.read(range(100, 120))
        blocks.remove(range(0, 100))
        self.assert_exact([blocks], live, self.made(Router, node.report))
        blocks.clear()
        self.assertEqual(self.assert_exact([blocks], live, self.made(Router, node.report)), set())
        self.assertEqual(node.metric("larder_kv_event_unread_total"), 0)

    def test_what_was_missed_is_told_again(self):
        """By the messages themselves, or, where few are kept, by all that is there."""
        for kept in ("3", "10000"):
            node = self.node("--kv-events-kept", kept, "--events-max", "100", *self.ssd())
            blocks, lossy = self.made(Blocks, node), self.made(Router, node.report)
            for step in range(20):
                blocks.put(20)
                blocks.remove(random.Random(step).sample(range(len(blocks.hashes)), 5))
                lossy.follow(lose=0.5)
                if step % 5 == 4:
                    late = self.made(Router, node.report)
                    self.assert_exact([blocks], late)
            self.assert_exact([blocks], lossy)
            self.assertGreater(lossy.replays, 1)
            self.assertEqual(node.metric("larder_kv_event_replay_snapshots_total") > 0, kept == "3")

    def test_a_subscriber_that_does_not_read(self):
        node = self.node("--kv-events-hwm", "1")
        slow, blocks = self.made(Router, node.report, room=1), self.made(Blocks, node, block_tokens=4096)
        blocks.put(3000)  # 14 MB of messages, more than sockets hold
        truth = self.assert_exact([blocks], slow)
        self.assertGreater(len(truth), 100 * 256)
        self.assertGreater(slow.replays, 1, "nothing was lost")

    def test_each_model_has_a_topic_and_numbers_of_its_own(self):
        node = self.node("--kv-events-topic", "kv@{node}@{cache_prefix}")
        one, other = (self.made(Blocks, node, cache_prefix=name) for name in ("org/one", "org/other"))
        adapter = self.made(Blocks, node, cache_prefix="org/one", lora="ab")
        files = self.made(larder_kv.Client, node.address, environment=False, deadline_ms=20000)
        files.namespace({"kind": "opaque", "model": "files"}).put([digest("file")], np.zeros((1, 100), np.uint8))
        of_one, of_all = self.made(Router, node.report, b"kv@n1@org/one"), self.made(Router, node.report)
        for each in (one, other, adapter):
            each.put(30)
        self.assert_exact([one, adapter], of_one)
        self.assert_exact([one, other, adapter], of_all)
        self.assertEqual(set(of_all.there), {b"kv@n1@org/one", b"kv@n1@org/other"})
        one.clear()  # the adapter's blocks stay
        self.assertEqual(len(self.assert_exact([one, adapter], of_one)), 30 * PER_BLOCK)
        other.clear()
        self.assert_exact([one, other, adapter], of_all)

    def test_a_router_that_listens_itself(self):
        address = f"127.0.0.1:{free_port()}"
        router = self.made(Router, {"kv_events": address}, b"all", listens=True)
        node = Node("16MiB", "--kv-events-connect", address, "--kv-events-topic", "all")
        self.addCleanup(node.end)
        end = time.monotonic() + PATIENCE_S
        blocks = self.made(Blocks, node)
        while not router.all() and time.monotonic() < end:  # nobody knows when the connection stands
            blocks.put(1)
            router.follow()
        self.assertLessEqual(router.all(), blocks.truth())
        self.assertTrue(router.all())


if __name__ == "__main__":
    import_once()
    unittest.main()
