"""``adapter_params`` of ``--l2-adapter``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from larder_kv.engine import settings


@dataclasses.dataclass(frozen=True)
class Options(settings.Cluster):
    """What else may be set."""

    deadline_ms: float = 5000  # of one task
    weights: dict[str, str] = dataclasses.field(default_factory=dict)  # model as the engine calls it: where its weights are


def parse(params: Mapping[str, Any]) -> tuple[Options, list[str]]:
    """The options and what to warn about. ValueError: a value makes no sense."""
    return settings.parse(Options, params, "adapter_params")
