#!/usr/bin/env python3
"""What a rolling restart costs: hits of a cluster whose every node is restarted under load, beside one that is left alone.

    tests/chaos/rolling.py [--rounds N] [--full PERCENT] [--ssd]

Three nodes with a real etcd, one copy of each block, memory of which the blocks fill 60 %; the demo's conversations, a
minute long, are played through them. Each node in turn gets SIGTERM (`hand_over_on_stop`: it hands its blocks over and gives up its
place), and when it has ended it is started again; with --ssd it keeps its place and its blocks on SSD instead. Wanted: less than
2 % of the hits lost. Alternating rounds, medians. LARDER_BIN: the folder of the programs.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
BIN = pathlib.Path(os.environ.setdefault("LARDER_BIN", str(HERE.parents[1] / "build/release/bin")))
from etcd_case import Etcd  # noqa: E402
from daemon import CLEAN_ENV, until  # noqa: E402

NODES = 3
FIRST_S, PAUSE_S = 12, 3  # before the first restart; between a node's return and the next one's end


class Member:
    def __init__(self, number, etcd, folder, memory, ssd):
        self.name, self.folder = f"n{number}", folder
        self.report = folder / f"{self.name}.json"
        self.argv = [BIN / "larder-node", "--node-id", self.name, "--data-listen", "127.0.0.1:0", "--control-listen",
                     "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--membership", "etcd", "--etcd-endpoints",
                     etcd.address, "--cluster", "rolling", "--state-dir", folder / f"{self.name}.state",
                     "--memory", str(memory), "--report", self.report, "--log-level", "warn",
                     "--shm-path", folder / f"{self.name}.sock"]
        if ssd:
            (folder / f"{self.name}.ssd").mkdir()
            self.argv += ["--ssd", folder / f"{self.name}.ssd", "--ssd-bytes", str(2 * memory)]
        else:
            self.argv += ["--hand-over-on-stop", "true"]
        self.start()

    def start(self):
        self.report.unlink(missing_ok=True)
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in self.argv], stdout=log, stderr=log, env=CLEAN_ENV)
        until(self.report.exists, self.name)

    def data(self):
        return json.loads(self.report.read_text())["data"]

    def restart(self):
        self.process.terminate()
        code = self.process.wait(120)
        if code != 0:
            raise RuntimeError(f"{self.name} ended with {code}")
        self.start()


def play(options, memory, restarts):
    """Hits of one play, and how many seconds each restart took."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        etcd, members, player, seconds = Etcd(folder), [], None, []
        try:
            members = [Member(number, etcd, folder, memory, options.ssd) for number in range(NODES)]
            player = subprocess.Popen([BIN / "larder-demo", "--nodes", ",".join(m.data() for m in members), "--json",
                                       folder / "out.json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=CLEAN_ENV)
            time.sleep(FIRST_S if restarts else 0)
            for member in members if restarts else []:
                begin = time.monotonic()
                member.restart()
                seconds.append(time.monotonic() - begin)
                time.sleep(PAUSE_S)
            if restarts and player.poll() is not None:
                raise RuntimeError("the play was over before the last node was back")
            if player.wait(300) != 0:
                raise RuntimeError("a wrong byte, or a process that died: see larder-demo")
            return json.loads((folder / "out.json").read_text()), seconds
        finally:
            for process in [player, *(m.process for m in members)]:
                if process is not None:
                    process.kill()
                    process.wait()
            etcd.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--full", type=int, default=60, help="percent of the memory that all blocks fill")
    parser.add_argument("--ssd", action="store_true")
    options = parser.parse_args()
    distinct = int(subprocess.run([BIN / "larder-demo", "distinct"], capture_output=True, check=True).stdout)
    memory = distinct * 100 // options.full // NODES
    shares = []
    for number in range(options.rounds):
        alone, _ = play(options, memory, False)
        rolled, seconds = play(options, memory, True)
        shares.append(1 - rolled["hit_rate"] / alone["hit_rate"])
        print(f"round {number + 1}: {100 * alone['hit_rate']:.2f} % of blocks hit (ideal {100 * alone['ideal_hit_rate']:.2f}), "
              f"{100 * rolled['hit_rate']:.2f} % with restarts of {', '.join(f'{s:.1f}' for s in seconds)} s: "
              f"{100 * shares[-1]:.2f} % of the hits lost; pulls that missed {alone['blocks_missed']}, "
              f"{rolled['blocks_missed']} {rolled['missed']}; wrong bytes "
              f"{alone['wrong_bytes'] + rolled['wrong_bytes']}", flush=True)
    lost = statistics.median(shares)
    print(f"hits lost: {100 * lost:.2f} % (wanted < 2 %)")
    return 0 if lost < 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
