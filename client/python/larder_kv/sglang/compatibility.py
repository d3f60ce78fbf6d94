"""Versions of SGLang that this backend was tested against, and what it needs of others."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
import inspect
import logging
from typing import Any

from larder_kv.engine.model import UnservedError

TRIED = ("0.5.23",)

# Calls of the interface, with the arguments that they are made with.
CALLS = {
    "register_mem_pool_host": ["mem_pool_host"],
    "register_mem_host_pool_v2": ["host_pool", "host_pool_name"],
    "batch_exists": ["keys", "extra_info"],
    "batch_get_v1": ["keys", "host_indices", "extra_info"],
    "batch_set_v1": ["keys", "host_indices", "extra_info"],
    "batch_exists_v2": ["keys", "pool_transfers", "extra_info"],
    "batch_get_v2": ["transfers", "extra_info"],
    "batch_set_v2": ["transfers", "extra_info"],
}
FIELDS = {
    "HiCacheStorageConfig": {
        *("tp_rank", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size", "dcp_rank", "dcp_size"),
        *("is_mla_model", "enable_storage_metrics", "model_name", "extra_config"),
    },
    "PoolTransfer": {"name", "host_indices", "keys", "hit_policy"},
    "PoolTransferResult": {"kv_hit_pages", "extra_pool_hit_pages", "restorable_prefix_pages"},
}


def _lacking(interface: Any) -> str:
    for name, arguments in CALLS.items():
        call = getattr(interface.HiCacheStorage, name, None)
        if call is None:
            return f"{name} is gone"
        found = [each for each in inspect.signature(call).parameters if each != "self"]
        if found != arguments:
            return f"{name} takes {found}"
    for name, wanted in FIELDS.items():
        missing = wanted - {field.name for field in dataclasses.fields(getattr(interface, name))}
        if missing:
            return f"{name} has no {', '.join(sorted(missing))}"
    return ""


def check(version: str, interface: Any, log: logging.Logger) -> None:
    """UnservedError when the interface is not the one that is known: off is better than wrong."""
    release = version.split("+")[0]
    if release in TRIED:
        return
    if lacking := _lacking(interface):
        raise UnservedError(f"SGLang {version} has another interface than {', '.join(TRIED)}: {lacking}")
    log.warning("Larder: SGLang %s was not tried (%s was); its interface looks the same", version, ", ".join(TRIED))
