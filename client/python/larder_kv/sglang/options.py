"""The adapter's part of ``--hicache-storage-backend-extra-config``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from larder_kv.engine import settings

SGLANGS = ("backend_name", "module_path", "class_name", "interface_v1")  # what SGLang itself reads there


@dataclasses.dataclass(frozen=True)
class Options(settings.Cluster):
    """What else may be set."""

    deadline_ms: float = 5000  # of one call, at most 128 pages


def parse(extra: Mapping[str, Any]) -> tuple[Options, list[str]]:
    """The options and what to warn about. ValueError: a value makes no sense."""
    return settings.parse(Options, extra, "hicache-storage-backend-extra-config", SGLANGS)
