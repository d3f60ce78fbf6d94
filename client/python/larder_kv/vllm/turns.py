"""What is to be expected of a request's blocks when it ends."""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Collection
from typing import Any

from larder_kv._enums import Retention

PARAMETER = "larder_retention"  # in a request's kv_transfer_params, by whoever knows better
_NAMES = {retention.name.lower(): retention for retention in Retention}


def retention_of(request: Any, tool_call_tokens: Collection[int]) -> Retention:
    """What the caller said; a tool call that was generated; a turn that came to its end. Nothing is known of what was
    aborted or cut off."""
    said = (getattr(request, "kv_transfer_params", None) or {}).get(PARAMETER)
    if isinstance(said, str) and said in _NAMES:
        return _NAMES[said]
    if getattr(request.status, "name", "") != "FINISHED_STOPPED":
        return Retention.NONE
    if tool_call_tokens and not set(tool_call_tokens).isdisjoint(request.output_token_ids):
        return Retention.CONTINUES
    return Retention.ENDED
