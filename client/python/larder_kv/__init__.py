"""Larder's client for Python: finds, pulls and puts blocks of KV cache.

    client = larder_kv.Client("127.0.0.1:7400")
    space = client.namespace({"kind": "kv", "model": "m", "layers": 8, "kv_heads": 4, "hash": "sha256"})
    match = space.match(hashes)                      # hashes: the engine's, 32 bytes each, root first
    result = space.get(hashes[: match.usable], blocks)  # into arrays, tensors or buffers, verified
    space.put(hashes, blocks)

Bytes are moved, hashed and waited for in C++ without the GIL. A dead, slow or full node is a miss of its blocks, never an
exception. Every call may be made from any thread at the same time.
"""

from larder_kv._client import (
    Client,
    Completion,
    GetResult,
    MatchResult,
    Namespace,
    PutResult,
    Queue,
    hash_link,
    hash_tokens,
)
from larder_kv._enums import Outcome, Presence, Priority, PutState, Retention
from larder_kv._errors import (
    BusyError,
    Code,
    DeadlineError,
    DeniedError,
    Error,
    ForkedError,
    InvalidError,
    UnavailableError,
)
from larder_kv._native import Buffer, Extents
from larder_kv._native import version as __version__

__all__ = [
    "Buffer",
    "BusyError",
    "Client",
    "Code",
    "Completion",
    "DeadlineError",
    "DeniedError",
    "Error",
    "Extents",
    "ForkedError",
    "GetResult",
    "InvalidError",
    "MatchResult",
    "Namespace",
    "Outcome",
    "Presence",
    "Priority",
    "PutResult",
    "PutState",
    "Queue",
    "Retention",
    "UnavailableError",
    "__version__",
    "hash_link",
    "hash_tokens",
]
