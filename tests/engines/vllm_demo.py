#!/usr/bin/env python3
"""`deploy/demo --vllm`: a long chat prompt in one vLLM process, and again in another one that finds it in Larder."""

import random
import sys

from engine import Engine, import_once, transfer_config
from nodes import Node

PROMPT_TOKENS = 4096


def first_token(engine, tokens):
    ((_, cached),), seconds = engine.call("generate", [tokens], max_tokens=1)
    return cached, seconds


def main():
    import_once(OMP_NUM_THREADS="2")
    node = Node("512MiB")
    options = {
        "record": False,
        "max_model_len": 8192,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1,
        "kv_cache_memory_bytes": 160 << 20,
    }
    first, second = (
        Engine(f"demo-{name}", "llama", transfer_config(node.address), {"OMP_NUM_THREADS": "2"}, **options)
        for name in ("first", "second")
    )
    try:
        for engine in (first, second):
            first_token(
                engine.ready(), [random.randrange(3, 2000) for _ in range(200)]
            )  # the first step of a process is slow
        prompt = [random.Random(1).randrange(3, 2000) for _ in range(PROMPT_TOKENS)]
        _, computed = first_token(first, prompt)
        first.call("settle")
        reused, pulled = first_token(second, prompt)
    finally:
        first.close()
        second.close()
        node.end()
    print(f"vLLM on this CPU, a prompt of {PROMPT_TOKENS} tokens (a model of 25 M parameters with random weights):")
    print(f"  first run, computed and stored:           {computed:6.3f} s to the first token")
    print(f"  second run, another process, from Larder: {pulled:6.3f} s to the first token, {reused} tokens reused")
    print(f"  {computed / pulled:.1f} times as fast")
    return 0 if reused >= PROMPT_TOKENS - 256 else 1


if __name__ == "__main__":
    sys.exit(main())
