#!/usr/bin/env python3
"""Recomputes names.txt, the checksums and (given the xxhash module) placement.txt from their definitions.

A second implementation: it shares no code with proto/, only what proto/DESIGN.md and the headers say.
"""
import hashlib
import pathlib
import struct
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "v1"


def sha(*pieces):
    return hashlib.sha256(b"".join(pieces)).digest()


def text(value):
    return struct.pack("<I", len(value)) + value


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: computed {got}, the vector says {wanted}")


def from_hex(name):
    return bytes.fromhex((FOLDER / name).read_text())


def check_names():
    identity = sha((FOLDER / "identity.txt").read_bytes())
    names = [line.split() for line in (FOLDER / "names.txt").read_text().splitlines()]
    tokens = [i * 2654435761 % 2**32 for i in range(64)]
    parent, chain = bytes(32), []
    for block in range(4):
        parent = sha(b"larder chain 1\n", parent, struct.pack("<17I", 16, *tokens[16 * block:16 * block + 16]))
        chain.append(parent)
    for kind, *words, value in names:
        if kind == "identity":
            wanted = identity
        elif kind == "namespace":
            tenant, salt = (b"" if word == "-" else word.encode() for word in words)
            wanted = sha(b"larder namespace 1\n", identity, text(tenant), text(salt))
        elif kind == "chain":
            wanted = chain.pop(0)
        elif kind == "link":
            wanted = sha(b"larder link 1\n", bytes(range(32)), b"some bytes")
        elif kind == "table":
            wanted = sha(b"larder table 1\n", struct.pack("<QHI", 42, 1, 3),
                         text(b"[::1]:7400"), text(b"[::1]:7400"), struct.pack("<IB", 65536, 2),
                         text(b"larder-0.larder.default"), text(b"10.0.0.1:7400"), struct.pack("<IB", 3, 1),
                         text(b"n3"), text(b"n3:1"), struct.pack("<IB", 1, 3))
        else:
            sys.exit(f"names.txt: nobody computes {kind}")
        expect(kind, wanted.hex(), value)


def check_checksums():
    for name in ["header_plain.hex", "header_full.hex", "header_extended.hex", "table.hex"]:
        data = from_hex(name)
        expect(name, crc32c(data[:-4]), struct.unpack("<I", data[-4:])[0])


def cost(h):
    """-log2((h + 1) / 2^64) with 32 fraction bits, by squaring a 63-bit mantissa."""
    x = h + 1
    if x == 2**64:
        return 0
    log = x.bit_length() - 1
    mantissa = x << (63 - log)
    for _ in range(32):
        square = mantissa * mantissa
        log *= 2
        if square >= 2**127:
            log += 1
            mantissa = square >> 64
        else:
            mantissa = square >> 63
    return (64 << 32) - log


def check_placement(xxh3):
    def rendezvous(slot, node):
        return cost(xxh3(struct.pack("<H", slot) + node.encode()))

    nodes = []
    for words in map(str.split, (FOLDER / "placement.txt").read_text().splitlines()):
        if words[0] == "slotof":
            expect("slot", xxh3(bytes.fromhex(words[1])) >> 48, int(words[2]))
        elif words[0] == "cost":
            expect("cost", rendezvous(int(words[1]), words[2]), int(words[3]))
        elif words[0] == "table":
            nodes = []
        elif words[0] == "node":
            nodes.append((words[1], int(words[3])))
        elif words[0] == "slot":
            # Equal denominators instead of cross-multiplication: the same order, another way to it.
            product = 1
            for _, weight in nodes:
                product *= weight
            slot = int(words[1])
            ranked = sorted(nodes, key=lambda n: (rendezvous(slot, n[0]) * (product // n[1]), n[0]))
            expect(f"slot {slot}", [node for node, _ in ranked[:4]], words[2:])


check_names()
check_checksums()
try:
    import xxhash
except ImportError:
    print("names and checksums agree; placement needs the Python module xxhash and was left out")
else:
    check_placement(xxhash.xxh3_64_intdigest)
    print("names, checksums and placement agree")
