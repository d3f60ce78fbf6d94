"""What can be said of a model without its weights."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Configuration that says where a model comes from, not what it computes.
NOT_IDENTITY = {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "_attn_implementation"}


class UnservedError(Exception):
    """This model or configuration gets no hits; the text says why and how to mend it."""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items() if name not in NOT_IDENTITY}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def config_digest(hf_config: Any) -> str:
    """Of the configuration as the engine runs it: rope overrides and the like are in it."""
    text = json.dumps(_plain(hf_config.to_dict()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
