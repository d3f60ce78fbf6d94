"""Versions of SGLang that this backend was tested against, and what it needs of others."""

# mypy: ignore-errors
from __future__ import annotations

import logging
from typing import Any

from larder_kv.engine import compatibility

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
    if lacking := compatibility.lacking_calls(interface.HiCacheStorage, CALLS):
        return lacking
    return next(filter(None, (compatibility.lacking_fields(getattr(interface, name), FIELDS[name]) for name in FIELDS)), "")


def check(version: str, interface: Any, log: logging.Logger) -> None:
    compatibility.check("SGLang", version, TRIED, lambda: _lacking(interface), log)
