"""KV events: routers learn by the engine's own hashes what is in Larder."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

from larder_kv.vllm.geometry import Geometry
from larder_kv.vllm.requests import RequestState

MEDIUM = "LARDER"
EVENTS_MAX = 4096  # between two steps; the engine drops them when nobody listens


class Events:
    """Collects what was stored until the engine takes it."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self._waiting: list[Any] = []

    def stored(self, state: RequestState, chunks: list[tuple[int, int]]) -> None:
        """(group, chunk) pairs of one rank; the first group speaks for all."""
        from vllm.distributed.kv_events import BlockStored
        from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

        first, hashes = self._geometry.groups[0].number, state.hashes
        step, size = self._geometry.hashes_per_chunk, self._geometry.hash_tokens
        lora = getattr(state.request, "lora_request", None)
        for group, chunk in chunks:
            if group != first or len(self._waiting) >= EVENTS_MAX:
                continue
            begin = chunk * step
            self._waiting.append(
                BlockStored(
                    block_hashes=[maybe_convert_block_hash(each) for each in hashes[begin : begin + step]],
                    parent_block_hash=maybe_convert_block_hash(hashes[begin - 1]) if begin else None,
                    token_ids=list(state.request.all_token_ids[begin * size : (begin + step) * size]),
                    block_size=size,
                    lora_id=lora.lora_int_id if lora else None,
                    medium=MEDIUM,
                    lora_name=lora.lora_name if lora else None,
                    locality="REMOTE",
                )
            )

    def take(self) -> list[Any]:
        taken, self._waiting = self._waiting, []
        return taken
