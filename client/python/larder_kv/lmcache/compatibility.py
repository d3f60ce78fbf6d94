"""Versions of LMCache that this adapter was tested against, and what it needs of others."""

# mypy: ignore-errors
from __future__ import annotations

import inspect
import logging
from typing import Any

from larder_kv.engine.model import UnservedError

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


def _lacking(base: Any) -> str:
    for name, arguments in CALLS.items():
        call = getattr(base, name, None)
        if call is None:
            return f"{name} is gone"
        found = [each for each in inspect.signature(call).parameters if each != "self"]
        if found != arguments:
            return f"{name} takes {found}"
    return ""


def check(version: str, base: Any, log: logging.Logger) -> None:
    """UnservedError when the interface is not the one that is known: off is better than wrong."""
    release = version.split("+")[0]
    if release in TRIED:
        return
    if lacking := _lacking(base):
        raise UnservedError(f"LMCache {version} has another interface than {', '.join(TRIED)}: {lacking}")
    log.warning("Larder: LMCache %s was not tried (%s was); its interface looks the same", version, ", ".join(TRIED))
