"""kv_connector_extra_config of ``--kv-transfer-config``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from larder_kv.engine import settings


@dataclasses.dataclass(frozen=True)
class Options(settings.Cluster):
    """What else may be set."""

    load_async: bool = True
    lookup_async: bool = True
    save_decode_cache: bool = False  # also what was generated; else prompts only
    chunk_tokens: int = 0  # tokens of a Larder block; 0: see geometry.py
    deadline_ms: float = 5000  # what has not come by then is computed
    tool_call_tokens: tuple[int, ...] = ()  # token ids that begin a tool call: such a turn is soon continued


def parse(extra: Mapping[str, Any]) -> tuple[Options, list[str]]:
    """The options and what to warn about. ValueError: a value makes no sense."""
    return settings.parse(Options, extra, "kv_connector_extra_config")
