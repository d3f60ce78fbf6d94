"""Keys, identity and memory of LMCache's objects."""

# mypy: ignore-errors
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from larder_kv import hash_link

INTERFACE = "lmcache-l2-1"  # raised when the meaning of bytes or hashes changes without any other field changing
HASH_BYTES_MIN = 16  # a shorter hash of tokens can meet another one's
VALUE_BYTES_MAX = 1000  # of a field of an identity


def key_of(key: Any) -> bytes:
    """LMCache's own key but for the model, which is in the identity."""
    text = f"{key.kv_rank:x}@{key.object_group_id:x}@{key.chunk_hash.hex()}@{key.cache_salt}"
    return hash_link(None, text.encode())


def layout_of(shapes: Sequence[Any], dtypes: Sequence[Any]) -> str:
    """Shapes and types of all tensors in an object."""
    text = ";".join(
        f"{'x'.join(str(side) for side in shape)}:{str(dtype).removeprefix('torch.')}"
        for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    return text if len(text) <= VALUE_BYTES_MAX else hashlib.sha256(text.encode()).hexdigest()


def fields_of(model: str, weights_digest: str, layout: str, cache_prefix: str) -> dict[str, str | int]:
    """The identity of objects of one model and layout."""
    fields: dict[str, str | int] = {
        "kind": "opaque",
        "model": model if len(model.encode()) <= VALUE_BYTES_MAX else hashlib.sha256(model.encode()).hexdigest(),
        "weights_digest": weights_digest,
        "layout": layout,
        "engine_layout": INTERFACE,
        "cache_prefix": cache_prefix,
    }
    return {name: value for name, value in fields.items() if value != ""}
