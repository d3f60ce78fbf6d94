"""Watches the connector's worker half inside an engine: what it stored, what it loaded, block by block.

Written to the file LARDER_TEST_RECORDS, a JSON line each, so that engines of several processes can be compared:
{"what": "stored" | "loaded", "key": of the chunk, "group", "rank", "at": block in the chunk, "bytes": digest of them}.
"""

import collections
import ctypes
import hashlib
import json
import os
import time

TOTALS = collections.Counter()
_spoil = {"byte": False, "signal": None, "sample": b""}


def spoil_loaded(on):
    """A connector that does not verify, by hand: one byte of the first block is wrong after it was loaded."""
    _spoil["byte"] = on


def signal_before_load(pid, number):
    """Once, between the answer that blocks are there and the question for them: a node dies or stops in mid-load."""
    _spoil["signal"] = (pid, number)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "TZX"
    except FileNotFoundError:
        return False


def sample():
    """64 bytes from the middle of the first chunk that was stored last."""
    return _spoil["sample"]


def _digests(memory, blocks):
    """Of each engine block: all its extents in order."""
    for block in blocks:
        if block < 0:
            yield None
            continue
        total = hashlib.sha256()
        for start in memory._starts.reshape(-1):
            total.update(ctypes.string_at(int(start) + block * memory._stride, memory.extent_bytes))
        yield total.hexdigest()[:32]


def _write(what, memory, run, chunks=None):
    per = memory.blocks_per_chunk
    lines = []
    for at, digest in enumerate(_digests(memory, run.blocks)):
        chunk = at // per
        if digest is None or (chunks is not None and chunk not in chunks):
            continue
        lines.append(
            json.dumps(
                {
                    "what": what,
                    "key": run.keys[chunk * 32 : chunk * 32 + 32].hex(),
                    "group": run.group,
                    "rank": memory.share.rectangle,
                    "at": at % per,
                    "bytes": digest,
                }
            )
        )
    with open(os.environ["LARDER_TEST_RECORDS"], "a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def install():
    from larder_kv.vllm import stats, worker

    side = worker.WorkerSide
    if side._begin_store.__name__ == "recorded_store":
        return
    begin_store, begin_load, loaded, count = side._begin_store, side._begin_load, side._loaded, stats.Counters.add

    def recorded_store(self, transfer):
        for run in transfer.job.runs:
            _write("stored", self._memories[run.group], run)
            if run.first_chunk == 0:
                memory = self._memories[run.group]
                start = int(memory._starts.reshape(-1)[-1]) + run.blocks[0] * memory._stride
                _spoil["sample"] = ctypes.string_at(start + memory.extent_bytes // 2, 64)
        begin_store(self, transfer)

    def signalled_load(self, transfer):
        if _spoil["signal"]:
            pid, number = _spoil["signal"]
            _spoil["signal"] = None
            os.kill(pid, number)
            while _runs(pid):  # until it is really stopped, or dead
                time.sleep(0.001)
        begin_load(self, transfer)

    def recorded_load(self, transfer, run, result):
        memory = self._memories[run.group]
        if _spoil["byte"] and any(block >= 0 for block in run.blocks):
            block = next(block for block in run.blocks if block >= 0)
            at = int(memory._starts.reshape(-1)[0]) + block * memory._stride
            value = (ctypes.c_ubyte * 4).from_address(at)
            value[3] ^= 0x40  # the exponent of the first number
        good = {chunk for chunk, outcome in enumerate(result.outcomes) if outcome == 0} if result is not None else set()
        _write("loaded", memory, run, good)
        loaded(self, transfer, run, result)

    def counted(self, **values):
        for name, value in values.items():
            TOTALS[name] += value
        count(self, **values)

    side._begin_store, side._begin_load = recorded_store, signalled_load
    side._loaded, stats.Counters.add = recorded_load, counted


def read(path):
    """(stored, loaded): {(key, group, rank, at): set of digests}."""
    found = {"stored": collections.defaultdict(set), "loaded": collections.defaultdict(set)}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            found[each["what"]][each["key"], each["group"], tuple(each["rank"]), each["at"]].add(each["bytes"])
    return found["stored"], found["loaded"]
