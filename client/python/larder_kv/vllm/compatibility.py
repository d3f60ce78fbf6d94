"""Versions of vLLM that this connector was run on, and what it needs of others."""

# mypy: ignore-errors
from __future__ import annotations

import logging
from typing import Any

from larder_kv.engine import compatibility

TRIED = ("0.32.0",)

# Calls of the interface that must be there, with the arguments that they are made with.
CALLS = {
    "on_new_request": ["request"],
    "get_num_new_matched_tokens": ["request", "num_computed_tokens"],
    "update_state_after_alloc": ["request", "blocks", "num_external_tokens"],
    "build_connector_meta": ["scheduler_output"],
    "update_connector_output": ["connector_output"],
    "register_kv_caches": ["kv_caches"],
    "handle_preemptions": ["kv_connector_metadata"],
    "start_load_kv": ["forward_context", "kwargs"],
    "wait_for_save": [],
    "get_transfer_results": ["finished_req_ids"],
    "get_block_ids_with_load_errors": [],
    "build_connector_worker_meta": [],
}
FIELDS = {
    "SchedulerOutput": {
        "num_scheduled_tokens",
        "total_num_scheduled_tokens",
        "scheduled_cached_reqs",
        "kv_connector_block_state",
        "has_sync_kv_loads",
    },
    "KVCacheConfig": {"num_blocks", "kv_cache_groups", "hash_block_size", "kv_cache_layout"},
}


def _lacking(base: Any) -> str:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig

    if lacking := compatibility.lacking_calls(base, CALLS):
        return lacking
    for kind in (SchedulerOutput, KVCacheConfig):
        if lacking := compatibility.lacking_fields(kind, FIELDS[kind.__name__]):
            return lacking
    if any(
        name not in CALLS and name not in ("wait_for_layer_load", "save_kv_layer") for name in base.__abstractmethods__
    ):
        return "there are calls that it must have and does not know"
    return ""


def check(version: str, base: Any, log: logging.Logger) -> None:
    compatibility.check("vLLM", version, TRIED, lambda: _lacking(base), log)
