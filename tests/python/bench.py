#!/usr/bin/env python3
"""Figures of the Python client beside the C++ one, in one process and in turns, against one node.

    build/release/python-tests/venv/bin/python tests/python/bench.py     after ctest -R Python.Prepare

The C++ client is liblarder.so, called with requests that were made beforehand: what remains of Python there is one call
through ctypes. A get is one batch of 16 blocks of 1 MiB; a match asks for 256 blocks. Medians; LARDER_LIB is the folder of
liblarder.so.
"""
import ctypes
import os
import pathlib
import statistics
import time

import numpy as np

import larder_kv
from node_case import Node

BLOCKS, BLOCK_BYTES, MATCH_BLOCKS, TURNS = 16, 1 << 20, 256, 200
LIB = pathlib.Path(os.environ.get("LARDER_LIB", pathlib.Path(__file__).resolve().parents[2] / "build/release/lib"))
U32, U64, POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class Extent(ctypes.Structure):
    _fields_ = [("data", POINTER), ("bytes", ctypes.c_size_t)]


class ClientOptions(ctypes.Structure):
    _fields_ = [("size", U32), ("fork_mode", U32), ("endpoints", ctypes.c_char_p), ("config_file", ctypes.c_char_p),
                ("transport", ctypes.c_char_p)]


class NamespaceOptions(ctypes.Structure):
    _fields_ = [("size", U32), ("reserved", U32), ("identity", ctypes.c_char_p)]


class GetRequest(ctypes.Structure):
    _fields_ = [("size", U32), ("priority", U32), ("hashes", POINTER), ("count", ctypes.c_size_t), ("groups", POINTER),
                ("group_count", ctypes.c_size_t), ("rectangles", POINTER), ("rectangle_count", ctypes.c_size_t),
                ("extents", POINTER)]


class GetResult(ctypes.Structure):
    _fields_ = [("size", U32), ("hits", U32)]


class Native:
    """A get through liblarder.so."""

    def __init__(self, address, transport, identity, hashes, target):
        self.library = ctypes.CDLL(str(LIB / "liblarder.so.0"))
        client, space, error = POINTER(), POINTER(), ctypes.create_string_buffer(512)
        options = ClientOptions(ctypes.sizeof(ClientOptions), 0, address.encode(), None, transport.encode())
        if self.library.larder_client_open(ctypes.byref(options), ctypes.byref(client), error):
            raise SystemExit(error.raw[4:].decode())
        names = NamespaceOptions(ctypes.sizeof(NamespaceOptions), 0, identity.encode())
        if self.library.larder_namespace_open(client, ctypes.byref(names), ctypes.byref(space), error):
            raise SystemExit(error.raw[4:].decode())
        self.space, self.error = space, error
        self.hashes = b"".join(hashes)
        self.extents = (Extent * BLOCKS)(*[Extent(row.ctypes.data, BLOCK_BYTES) for row in target])
        self.request = GetRequest(ctypes.sizeof(GetRequest), 0, ctypes.cast(self.hashes, POINTER), BLOCKS, None, 0, None,
                                  0, ctypes.cast(self.extents, POINTER))
        self.result = GetResult(ctypes.sizeof(GetResult), 0)

    def get(self):
        code = self.library.larder_get(self.space, ctypes.byref(self.request), ctypes.byref(self.result), self.error)
        return self.result.hits if code == 0 else -1


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(node, transport):
    identity = f"kind=opaque,model=bench-{transport}"
    client = larder_kv.Client(node.address, transport=transport, environment=False)
    space = client.namespace(identity)
    hashes, parent = [], None
    for number in range(MATCH_BLOCKS):
        parent = larder_kv.hash_link(parent, number.to_bytes(4, "little"))
        hashes.append(parent)
    source = np.random.default_rng(1).integers(0, 256, (BLOCKS, BLOCK_BYTES), np.uint8)
    assert space.put(hashes[:BLOCKS], source).there == BLOCKS
    assert space.put(hashes, np.zeros((MATCH_BLOCKS, 64), np.uint8)).there == MATCH_BLOCKS
    target = np.zeros_like(source)
    native = Native(node.address, transport, identity, hashes[:BLOCKS], target)
    extents = larder_kv.Extents.of(target)
    legs = {
        "C++": lambda: native.get(),
        "Python, Extents": lambda: space.get(hashes[:BLOCKS], extents).hits,
        "Python, arrays": lambda: space.get(hashes[:BLOCKS], target).hits,
    }
    times = {name: [] for name in legs}
    for turn in range(TURNS + 10):
        for name, work in legs.items():
            spent = seconds(work)
            if turn >= 10:
                times[name].append(spent)
    for name, work in legs.items():
        target[:] = 0
        assert work() == BLOCKS and (target == source).all(), name
    native_s = statistics.median(times["C++"])
    for name, spent in times.items():
        ratios = [ours / theirs for ours, theirs in zip(times["C++"], spent)]
        print(f"get {transport:5} {name:16} {BLOCKS * BLOCK_BYTES / statistics.median(spent) / 1e9:6.2f} GB/s   "
              f"/ C++ {native_s / statistics.median(spent):.3f} of medians, {statistics.median(ratios):.3f} in pairs")
    spent = sorted(seconds(lambda: space.match(hashes)) for _ in range(1000))
    print(f"match {transport:5} of {MATCH_BLOCKS}: {spent[500] * 1e3:.3f} ms p50, {spent[990] * 1e3:.3f} ms p99")
    client.close()


def main():
    node = Node()
    try:
        for transport in ("tcp", "auto"):
            measure(node, transport)
    finally:
        node.end()


if __name__ == "__main__":
    main()
