"""Pages of a host pool: where their bytes are. The pool says it; nothing is inferred from shapes."""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from larder_kv import Extents, hash_link
from larder_kv.engine.model import UnservedError

# Numbers of a pool that say what is in a page; a pool has those that apply to it.
SIZES = (
    *("page_size", "layer_num", "start_layer", "end_layer", "target_layer_num"),
    *("head_num", "head_group_num", "head_dim", "v_head_dim"),
    *("kv_lora_rank", "qk_rope_head_dim", "kv_cache_dim", "num_mamba_layers"),
)


def key_of(key: str) -> bytes:
    """SGLang's keys are SHA-256 in hexadecimal; anything else is hashed."""
    try:
        raw = bytes.fromhex(key) if len(key) == 64 else b""
    except ValueError:
        raw = b""
    return raw or hash_link(None, key.encode())


def buffers(pool: Any) -> Iterator[tuple[int, int]]:
    """Address and bytes of the pool's memory."""
    whole = getattr(pool, "kv_buffer", None)
    if whole is None:
        whole = pool.get_hybrid_pool_buffer() if hasattr(pool, "get_hybrid_pool_buffer") else []
    for tensor in whole if isinstance(whole, (list, tuple)) else [whole]:
        if tensor is not None and tensor.numel():
            yield tensor.data_ptr(), tensor.numel() * tensor.element_size()


class Pages:
    """The pages of one pool, and their identity."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.page_tokens = int(getattr(pool, "logical_page_size", 0) or getattr(pool, "page_size", 0) or 1)
        if getattr(pool, "kv_buffer", None) is None and not hasattr(pool, "get_hybrid_pool_buffer"):
            raise UnservedError(f"{type(pool).__name__} has no memory of its own: such models are not served yet")
        self._sizes = self._page_sizes()

    @property
    def page_bytes(self) -> int:
        return sum(self._sizes)

    def _page_sizes(self) -> tuple[int, ...]:
        import torch

        try:
            _, sizes = self._pool.get_page_buffer_meta(torch.arange(self.page_tokens))
        except (ValueError, NotImplementedError) as error:
            raise UnservedError(f"{error}: start SGLang with --hicache-mem-layout page_first") from error
        return tuple(map(int, sizes))

    def fields(self) -> dict[str, str | int]:
        """What the bytes of a page mean."""
        pool = self._pool
        found = {name: getattr(pool, name, None) for name in SIZES}
        described = [f"{name}={value}" for name, value in found.items() if isinstance(value, int)]
        described += [f"{size}x{self._sizes.count(size)}" for size in sorted(set(self._sizes))]
        for info in getattr(pool, "_buffer_infos", None) or ():  # how the engine's own memory orders heads and tokens
            described.append(str(getattr(getattr(info.buffers, "layout", None), "value", "")))
        return {
            "pool_class": type(pool).__name__,
            "pool_dtype": str(getattr(pool, "dtype", "")).removeprefix("torch."),
            "layout": f"{pool.layout}/{getattr(pool, 'storage_format_tag', None) or ''}",
            "page": ";".join(described),
        }

    def extents(self, keys: Sequence[str], host_indices: Any) -> Extents | None:
        """Where the pages are whose first slots these indices name; None when they don't fit together."""
        if host_indices is None or len(host_indices) != len(keys) * self.page_tokens:
            return None
        addresses, sizes = self._pool.get_page_buffer_meta(host_indices)
        if tuple(sizes) != self._sizes * len(keys):
            return None
        table = np.array(addresses, np.uint64).reshape(len(keys), len(self._sizes))
        return Extents.at(table, list(self._sizes))
