"""What the scheduler side remembers of a request."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
from typing import Any

from larder_kv.vllm.lookups import Lookup


@dataclasses.dataclass
class RequestState:
    request: Any  # the engine's
    lora: str  # digest of its adapter
    lookup: Lookup | None = None
    loading: Lookup | None = None  # what is being loaded is what it has pinned
    loads_open: int = 0  # jobs that no rank has reported yet
    asked: bool = False  # it has been looked up since it was last admitted
    local_tokens: int = 0  # computed here already when it was last offered something
    failed: bool = False  # a load failed once: never offer again, or it would go on for ever
    present: set[int] = dataclasses.field(default_factory=set)  # chunks known to be in Larder, all groups
    next_store: int = 0  # chunks before it are stored, present, or given up
    admitted: bool = False  # the engine gave it blocks
    stale: bool = False  # its blocks were computed with weights that have gone: they are never stored
    finished: bool = False
    stores_open: int = 0  # jobs that no rank has reported yet
    loaded_tokens: int = 0
    load_ms: float = 0.0
    stored_tokens: int = 0
    store_ms: float = 0.0

    @property
    def hashes(self) -> list[bytes]:
        return self.request.block_hashes

    def story(self, where: str) -> str:
        """The one log line of a request that loaded or stored; empty when it did neither."""
        parts = []
        if self.loaded_tokens:
            parts.append(f"{self.loaded_tokens} tokens loaded in {self.load_ms:.0f} ms")
        if self.stored_tokens:
            parts.append(f"{self.stored_tokens} tokens stored in {self.store_ms:.0f} ms")
        if self.failed:
            parts.append("a load failed and was computed instead")
        return f"Larder: request {self.request.request_id}: {', '.join(parts)} ({where})" if parts else ""
