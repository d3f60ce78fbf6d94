#!/usr/bin/env python3
"""One quick pass of the bench: its figures are there and its bytes are right. LARDER_BIN is where the programs are."""
import json
import os
import pathlib
import subprocess
import unittest

# Taken out of the environment: a node refuses LARDER_* variables that it doesn't know.
BIN = pathlib.Path(os.environ.pop("LARDER_BIN"))
QUICK = ["--seconds", "0.05", "--repeat", "2", "--match-keys", "70000", "--json"]


def bench(*arguments):
    return subprocess.run([BIN / "larder-bench", *arguments], capture_output=True, text=True, timeout=280, check=False)


class Bench(unittest.TestCase):
    def measure(self, *legs, working_set_mib=128):
        done = bench(*QUICK, "--working-set-mib", str(working_set_mib), *(word for leg in legs for word in ("--only", leg)))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}

    def test_blocks(self):
        lines = self.measure("get/tcp/1MiB", "getstream/tcp/1MiB", "put/tcp/64KiB", "get/shm/64KiB", "put/shm/1MiB")
        self.assertEqual(sorted(lines), ["get/shm/64KiB", "get/tcp/1MiB", "get/tcp/1MiB/noverify", "getstream/tcp/1MiB",
                                         "getstream/tcp/1MiB/noverify", "put/shm/1MiB", "put/shm/1MiB/ordinary",
                                         "put/tcp/64KiB"])
        for name, line in lines.items():
            for field in ("value", "p50_us", "p99_us", "cpu_s_per_gib", "reference_value", "ratio"):
                self.assertGreater(line[field], 0, name)
            self.assertEqual(line["unit"], "GB/s")
            self.assertEqual(line["reference"], "sockets" if "/tcp/" in name else "copy")

    def test_match_and_metadata(self):
        lines = self.measure("match/tcp/8192", "metadata")
        self.assertEqual(lines["match/tcp/8192"]["unit"], "us")
        self.assertEqual(lines["match/tcp/8192"]["reference"], "sockets")
        self.assertGreater(lines["match/tcp/8192/busy"]["p99_us"], 0)
        self.assertLessEqual(lines["metadata/count"]["value"], 128)

    def test_payload_share(self):
        # Slabs are 4 MiB at least: a node of 128 MiB has too few of them for five sizes.
        lines = self.measure("payload-share", working_set_mib=512)
        self.assertGreater(lines["payload-share/capacity"]["value"], 96)
        self.assertGreater(lines["payload-share/slots"]["value"], 96)

    def test_ssd(self):
        lines = self.measure("ssd/", "recover/first-hit")
        self.assertGreater(lines["ssd/write/1MiB"]["ratio"], 0)
        self.assertGreater(lines["ssd/read/1MiB"]["ratio"], 0)
        self.assertLessEqual(lines["ssd/write-amplification"]["value"], 1.15)
        self.assertGreater(lines["recover/first-hit"]["value"], 0)

    def test_names(self):
        names = bench("--list").stdout.split()
        for name in ("get/tcp/64KiB", "put/shm/4MiB", "get/ucx/1MiB", "match/tcp/65536/busy", "reference/copy/get/1MiB"):
            self.assertIn(name, names)
        self.assertEqual(bench("--only", "nothing/like/this").returncode, 2)
        self.assertEqual(bench("--seconds", "never").returncode, 2)


if __name__ == "__main__":
    unittest.main()
