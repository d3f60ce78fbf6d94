"""How the engine's blocks make Larder's: groups, chunks, keys. Numbers only; no engine, no memory.

A **chunk** is several engine blocks under one key: the hash of its last one. Bytes of a chunk:
``[layer][head group][engine block][head][token][K, V]``; the engine's packing inside a block is in the identity.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from larder_kv.engine.model import UnservedError

CHUNK_BYTES = 1 << 20  # the least power of two of engine blocks that reaches this
CHUNK_TOKENS_MAX = 256
CHUNKS_MAX = 65536  # of one request to a node
NULL_BLOCK = 0  # the engine's number for "no block here": outside of a window


@dataclasses.dataclass(frozen=True)
class Group:
    """Layers that share a block table. Sizes are the whole model's, not a rank's."""

    number: int
    layers: int
    heads: int
    block_tokens: int
    cell_bytes: int  # K and V of one token in one head of one layer
    window_tokens: int = 0  # 0: full attention

    @property
    def token_bytes(self) -> int:
        return self.layers * self.heads * self.cell_bytes

    def first_token(self, tokens: int) -> int:
        """Where what a prefix of so many tokens needs of this group begins."""
        return max(0, tokens - self.window_tokens + 1) if self.window_tokens else 0


@dataclasses.dataclass(frozen=True)
class Geometry:
    """All groups of a model and the chunk they share."""

    groups: tuple[Group, ...]
    hash_tokens: int  # the engine makes a hash of each so many tokens
    chunk_tokens: int
    head_groups: int

    @property
    def layers(self) -> int:
        return max(group.layers for group in self.groups)

    @property
    def hashes_per_chunk(self) -> int:
        return self.chunk_tokens // self.hash_tokens

    def blocks_per_chunk(self, group: Group) -> int:
        return self.chunk_tokens // group.block_tokens

    def chunk_bytes(self, group: Group) -> int:
        return self.chunk_tokens * group.token_bytes

    def whole_chunks(self, hashes: int) -> int:
        """Chunks that so many hashes of the engine cover."""
        return min(hashes // self.hashes_per_chunk, CHUNKS_MAX)

    def keys(self, hashes: Sequence[bytes], first: int, end: int) -> bytes:
        """Of chunks first..end, one behind the other."""
        step = self.hashes_per_chunk
        return b"".join(hashes[(chunk + 1) * step - 1] for chunk in range(first, end))

    def constituents(self, hashes: Sequence[bytes], first: int, end: int) -> bytes | None:
        """The engine's own hashes of chunks first..end: what a router knows them by."""
        step = self.hashes_per_chunk
        return b"".join(hashes[first * step : end * step]) if step > 1 else None

    def offer_tokens_max(self, prompt_tokens: int) -> int:
        """The engine must have a token left to compute."""
        block = max(group.block_tokens for group in self.groups)
        return (prompt_tokens - 1) // block * block

    def needed(self, group: Group, local_tokens: int, tokens: int) -> range:
        """Chunks of a group that turn a local prefix into one of `tokens`."""
        begin = max(local_tokens, group.first_token(tokens))
        return range(begin // self.chunk_tokens, -(-tokens // self.chunk_tokens)) if begin < tokens else range(0)

    def usable_tokens(self, present: Sequence[Sequence[bool]], local_tokens: int, most_tokens: int) -> int:
        """The longest prefix whose chunks beyond the local ones are all there; `present` holds a row a group."""
        chunks = min(min(len(row) for row in present), -(-most_tokens // self.chunk_tokens))
        for count in range(chunks, 0, -1):
            tokens = min(count * self.chunk_tokens, most_tokens)
            if tokens <= local_tokens:
                break
            if all(
                all(row[chunk] for chunk in self.needed(group, local_tokens, tokens))
                for group, row in zip(self.groups, present, strict=True)
            ):
                return tokens
        return 0


def plan(groups: Sequence[Group], hash_tokens: int, chunk_tokens: int = 0) -> Geometry:
    """chunk_tokens: the configured number, 0 for the default. UnservedError when it does not fit."""
    block = math.lcm(hash_tokens, *(group.block_tokens for group in groups))
    if chunk_tokens:
        if chunk_tokens % block:
            raise UnservedError(
                f"chunk_tokens is {chunk_tokens}; it must be a multiple of the engine's block of {block} tokens"
            )
        chosen = chunk_tokens
    else:
        chosen = block
        while chosen * max(group.token_bytes for group in groups) < CHUNK_BYTES and chosen * 2 <= CHUNK_TOKENS_MAX:
            chosen *= 2
    head_groups = math.gcd(8, *(group.heads for group in groups))
    return Geometry(tuple(groups), hash_tokens, chosen, head_groups)
