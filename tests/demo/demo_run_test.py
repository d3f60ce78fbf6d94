#!/usr/bin/env python3
"""Plays the demo through three real nodes, and breaks it. LARDER_BIN is where the programs are."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

# Taken out of the environment: a node refuses LARDER_* variables that it doesn't know.
BIN = pathlib.Path(os.environ.pop("LARDER_BIN"))
FIELDS = ("requests blocks_put bytes_put blocks_pulled bytes_pulled hit_rate ideal_hit_rate wrong_bytes payload_share "
          "match_p99_us pull_p99_us seconds").split()


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.nodes = []
        self.addCleanup(self.end_nodes)
        # Somebody may take a port between its choice and the node's start: then all are chosen anew.
        for _ in range(5):
            if self.start_nodes():
                return
            self.end_nodes()
        self.fail("the nodes did not start")

    def end_nodes(self):
        for node in self.nodes:
            node.kill()
            node.wait()
        self.nodes = []
        for report in self.folder.glob("n*.json"):
            report.unlink()

    def start_nodes(self):
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in held]
        for server in held:
            server.close()
        self.peers = ",".join(f"n{i}@{address}" for i, address in enumerate(self.addresses))
        for i in range(3):
            (self.folder / f"n{i}").mkdir(exist_ok=True)
            self.nodes.append(self.start_node(i))
        if not all(self.is_up(i) for i in range(3)):
            return False
        self.metrics = [json.loads((self.folder / f"n{i}.json").read_text())["http"] for i in range(3)]
        return True

    def start_node(self, i):
        return subprocess.Popen([
            BIN / "larder-node", f"--node-id=n{i}", f"--data-listen={self.addresses[i]}",
            "--control-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", f"--peers={self.peers}", "--memory=24MiB",
            f"--ssd={self.folder}/n{i}", "--ssd-bytes=96MiB", "--ssd-segment-bytes=4MiB", "--log-level=warn",
            f"--shm-path={self.folder}/n{i}.sock", f"--report={self.folder}/n{i}.json"])

    def is_up(self, i):
        end = time.monotonic() + 60
        while not (self.folder / f"n{i}.json").exists():
            if self.nodes[i].poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def command(self, *arguments):
        return [BIN / "larder-demo", "--nodes", ",".join(self.addresses), "--metrics", ",".join(self.metrics),
                "--json", self.folder / "out.json", *arguments]

    def play(self, *arguments):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=240, check=False)
        out = self.folder / "out.json"
        return done, json.loads(out.read_text()) if out.exists() else {}

    def test_conversations(self):
        done, out = self.play("--requests", "80", "--speed", "0", "--block-bytes", "128KiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        for field in FIELDS:
            self.assertIn(field, out)
        self.assertEqual((out["requests"], out["wrong_bytes"]), (80, 0))
        self.assertGreater(out["blocks_pulled"], 0)
        self.assertLessEqual(out["hit_rate"], out["ideal_hit_rate"])
        self.assertGreater(out["hit_rate"], 0.3)
        self.assertEqual(len(out["transports"]), 1)

    def test_hits_come_back_after_a_kill(self):
        request = self.folder / "kill"
        player = subprocess.Popen(
            self.command("--requests", "150", "--speed", "0", "--block-bytes", "256KiB", "--kill-node", "n1",
                         "--kill-request", request), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(player.wait)
        end = time.monotonic() + 200
        while not (request.exists() and request.read_text() == "n1\n") and time.monotonic() < end:
            self.assertIsNone(player.poll(), "it ended without asking")
            time.sleep(0.02)
        self.nodes[1].kill()
        self.nodes[1].wait()
        (self.folder / "n1.json").unlink()
        self.nodes[1] = self.start_node(1)
        self.assertTrue(self.is_up(1))
        request.unlink()
        self.assertEqual(player.wait(timeout=120), 0)
        out = json.loads((self.folder / "out.json").read_text())
        self.assertGreater(out["hits_by_tier"].get("ssd", 0), 0, out)
        self.assertGreater(out["pulled_by_tier"].get("ssd", 0), 0, out)
        self.assertEqual(sum(out["pulled_by_tier"].values()), out["blocks_pulled"])
        recovery = out["recovery"]
        self.assertGreater(recovery["held"]["ssd"], 0)
        self.assertGreaterEqual(recovery["came_back"], recovery["held"]["ssd"])
        self.assertLess(recovery["came_back"], recovery["held"]["ssd"] + recovery["held"]["ram"])
        self.assertEqual((recovery["wrong_bytes"], recovery["failure"], out["wrong_bytes"]), (0, "", 0))

    def test_trace_over_tcp(self):
        trace = self.folder / "trace.jsonl"
        lines = [{"timestamp": i, "input_length": 1, "output_length": 1, "hash_ids": [0, 1, 2, 3 + i % 7, 10 + i]}
                 for i in range(50)]
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done, out = self.play("--trace", trace, "--transport", "tcp")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(out["transports"], {"tcp": 3})
        self.assertEqual(out["blocks_pulled"], 250)
        self.assertEqual(out["blocks_put"], 60, out)
        self.assertAlmostEqual(out["hit_rate"], out["ideal_hit_rate"])
        self.assertAlmostEqual(out["hit_rate"], (6 * 3 + 43 * 4) / 250)

    def test_a_node_that_dies_costs_misses_only(self):
        player = subprocess.Popen(self.command("--speed", "20", "--block-bytes", "64KiB", "--requests", "120"),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        player.stderr.readline()
        self.nodes[1].send_signal(signal.SIGKILL)
        player.stderr.read()
        self.assertEqual(player.wait(timeout=240), 0)
        player.stderr.close()
        out = json.loads((self.folder / "out.json").read_text())
        self.assertEqual((out["requests"], out["wrong_bytes"]), (120, 0))
        self.assertGreater(out["blocks_missed"], 0)
        self.assertGreater(out["blocks_pulled"], 0)

    def test_decode_does_not_wait_for_what_prefill_put_and_a_node_dropped(self):
        decode = subprocess.Popen([BIN / "larder-demo", "decode", "--nodes", ",".join(self.addresses), "--transport",
                                   "auto", "--block-bytes", "65536", "--seed", "1"], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with decode:
            self.assertEqual(json.loads(decode.stdout.readline()), {"ready": True})
            decode.stdin.write('{"id": 0, "blocks": [1, 2]}\n{"prefilled": 0}\n')
            decode.stdin.flush()
            result = json.loads(decode.stdout.readline())
            decode.stdin.close()
        self.assertEqual((result["pulled"], result["missed"]), (0, {"never-stored": 2}))
        self.assertLess(result["wait_us"], 9_000_000, "it waited to the end of its patience")

    def test_interrupt_leaves_nothing(self):
        player = subprocess.Popen(self.command("--speed", "1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True)
        player.stderr.readline()
        children = pathlib.Path(f"/proc/{player.pid}/task/{player.pid}/children").read_text().split()
        self.assertEqual(len(children), 2)
        player.send_signal(signal.SIGINT)
        player.stderr.read()
        self.assertEqual(player.wait(timeout=60), 130)
        player.stderr.close()
        for child in children:
            self.assertFalse(os.path.exists(f"/proc/{child}"), "a worker is left")

    def test_bad_input(self):
        for arguments, words in ((["--trace", "/nowhere"], "can't be read"), (["--block-bytes", "12"], "multiple of 8"),
                                 (["--block-bytes", "1parsec"], "unknown unit"), (["--what"], "--what"), (["--kill-node", "n1"], "go together")):
            done, _ = self.play(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
