#!/usr/bin/env python3
"""Runs larder-sim on a small trace of its own. LARDER_BIN is where the program is."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest
import xml.dom.minidom

SIM = pathlib.Path(os.environ["LARDER_BIN"]) / "larder-sim"
POLICIES = "tournament hazard lru s3-fifo arc lru-2 lfu min".split()


class Sim(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.trace = self.folder / "small.jsonl"
        dice = random.Random(1)
        lines, chains, fresh = [], [[0]], 1
        for i in range(600):
            chain = dice.choice(chains[-20:])
            chain = chain + list(range(fresh, fresh + 3))
            fresh += 3
            chains.append(chain if len(chain) < 40 else [0])
            lines.append({"timestamp": i * 500, "input_length": 512 * len(chain), "output_length": 1,
                          "hash_ids": chain})
        self.trace.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run_sim(self, *arguments, code=0):
        done = subprocess.run([SIM, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def cells(self, *arguments):
        return [json.loads(line) for line in self.run_sim(self.trace, "--json", *arguments).stdout.splitlines()]

    def test_every_policy_at_every_size(self):
        cells = self.cells()
        self.assertEqual([(c["policy"], c["size_percent"]) for c in cells],
                         [(p, s) for p in POLICIES for s in (1, 2, 5, 10, 20, 40)])
        for cell in cells:
            self.assertEqual((cell["trace"], cell["tiers"]), ("small", 1))
            self.assertTrue(0 <= cell["hit_percent"] <= 100)
            self.assertEqual(cell.get("default", False), cell["policy"] == "tournament")
        best = {c["size_percent"]: c["hit_percent"] for c in cells if c["policy"] == "min"}
        for cell in cells:
            self.assertLessEqual(cell["hit_percent"], best[cell["size_percent"]] + 1e-9)

    def test_tiers_and_nodes(self):
        one, two = (self.cells("--policy", "lru", "--size", 5, "--tiers", tiers)[0] for tiers in (1, 2))
        self.assertGreater(two["hit_percent"], one["hit_percent"])
        self.assertAlmostEqual(two["hit_percent"], two["ram_hit_percent"] + two["ssd_hit_percent"])
        twice = self.cells("--policy", "lru", "--size", 5, "--tiers", 2, "--admission", "twice")[0]
        self.assertLess(twice["ssd_writes"], two["ssd_writes"])
        nodes = self.cells("--policy", "default", "--size", 20, "--nodes", 4, "--hot-copies", 2)[0]
        self.assertEqual((nodes["nodes"], nodes["policy"]), (4, "tournament"))
        self.assertGreaterEqual(nodes["load_max_over_mean"], 1)

    def test_advice_is_a_table_and_a_picture(self):
        done = self.run_sim(self.trace, "--advise")
        self.assertIn("no SSD", done.stdout)
        xml.dom.minidom.parse(str(self.folder / "small.svg"))

    def test_bad_input(self):
        self.assertIn("can't be read", self.run_sim("gone.jsonl", code=2).stderr)
        for arguments in (["--policy", "best"], ["--size", "0"], ["--policy", "min", "--nodes", "2"], ["--what"]):
            self.run_sim(self.trace, *arguments, code=2)
        self.trace.write_text('{"timestamp": 1}\n')
        self.assertIn(":1:", self.run_sim(self.trace, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
