#!/usr/bin/env python3
"""Seconds to the first token: computed, pulled from a node, copied from files in memory.

    tests/engines/bench [--rounds N] [--json FILE]

One run, engines side by side and taking turns, medians over rounds; each round has new prompts. Ratios are what counts: a
busy machine slows everything.
"""

import argparse
import json
import random
import statistics
import tempfile

from engine import Engine, import_once, transfer_config
from nodes import Node

LENGTHS = (512, 2048, 4096)


def prompt(length):
    return [random.randrange(3, 2000) for _ in range(length)]


def first_token(engine, tokens):
    (output,), took = engine.call("generate", [tokens], max_tokens=1)
    return output, took


def engines(node, folder):
    options = {
        "record": False,
        "max_model_len": 8192,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1,
        "kv_cache_memory_bytes": 256 << 20,
    }
    threads = {"OMP_NUM_THREADS": "2"}
    files = {
        "kv_connector": "FileConnector",
        "kv_connector_module_path": "file_connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"folder": folder},
    }
    made = {
        "plain": Engine("bench-plain", "llama", None, threads, **options),
        "files": Engine("bench-files", "llama", files, threads, **options),
    }
    for transport in ("tcp", "shm"):
        made[transport] = Engine(
            f"bench-{transport}",
            "llama",
            transfer_config(node.address, tenant=transport),
            {**threads, "LARDER_TRANSPORT": transport},
            **options,
        )
    return made


def measure(made, rounds):
    """{(engine, "cold" or "hit", length): seconds}, and tokens that differ from the plain engine's."""
    took, wrong = {}, 0
    for engine in made.values():
        engine.ready()
        first_token(engine, prompt(256))  # the first step of a process is slow
    for _ in range(rounds):
        for length in LENGTHS:
            tokens = prompt(length)
            wanted, seconds = first_token(made["plain"], tokens)
            took.setdefault(("plain", "cold", length), []).append(seconds)
            for name in ("tcp", "shm", "files"):
                for turn in ("cold", "hit"):
                    output, seconds = first_token(made[name], tokens)
                    took.setdefault((name, turn, length), []).append(seconds)
                    wrong += output[0] != wanted[0]
                    if turn == "hit" and output[1] < length - 256:
                        raise SystemExit(f"{name}: only {output[1]} of {length} tokens were hit")
                    made[name].call("settle")
    return {key: statistics.median(values) for key, values in took.items()}, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    import_once(OMP_NUM_THREADS="2")
    node = Node("2GiB")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        made = engines(node, folder)
        try:
            took, wrong = measure(made, arguments.rounds)
        finally:
            for engine in made.values():
                engine.close()
            node.end()
    figures = {}
    for length in LENGTHS:
        for name in ("tcp", "shm", "files"):
            figures[f"hit / recompute, {length} tokens, {name}"] = (
                took[name, "hit", length] / took[name, "cold", length]
            )
        figures[f"cold with stores / cold without, {length} tokens, tcp"] = (
            took["tcp", "cold", length] / took["plain", "cold", length]
        )
        figures[f"hit over shm - hit from files, {length} tokens, ms"] = 1000 * (
            took["shm", "hit", length] - took["files", "hit", length]
        )
    figures["tokens that differ"] = wrong
    for (name, turn, length), seconds in sorted(took.items(), key=lambda each: (each[0][2], each[0])):
        print(f"{length:5} tokens  {name:6} {turn:5} {seconds * 1000:8.1f} ms")
    for name, value in figures.items():
        print(f"{name:58} {value:8.3f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
