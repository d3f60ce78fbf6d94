"""Versions of LMCache that this adapter was tested against, and what it needs of others."""

# mypy: ignore-errors
from __future__ import annotations

import logging
from typing import Any

from larder_kv.engine import compatibility

TRIED = ("0.5.6",)

# Calls of the interface, with the arguments that they are made with.
CALLS = {
    "get_store_event_fd": [],
    "get_lookup_and_lock_event_fd": [],
    "get_load_event_fd": [],
    "submit_store_task": ["keys", "objects"],
    "pop_completed_store_tasks": [],
    "submit_lookup_and_lock_task": ["keys", "group_layout_descs"],
    "query_lookup_and_lock_result": ["task_id"],
    "submit_unlock": ["keys"],
    "submit_load_task": ["keys", "objects"],
    "query_load_result": ["task_id"],
    "close": [],
}


def check(version: str, base: Any, log: logging.Logger) -> None:
    compatibility.check("LMCache", version, TRIED, lambda: compatibility.lacking_calls(base, CALLS), log)
