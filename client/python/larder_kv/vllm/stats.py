"""Counters, in the engine's own statistics: its log lines and /metrics."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

# name -> what it counts
COUNTERS = {
    "lookups": "questions which blocks Larder has",
    "prefetches": "chunks on SSD that were asked up for requests that wait, in all groups",
    "loads_too_late": "prefixes, or ends of them, not loaded since computing them was expected to be sooner",
    "loads": "loads that were asked for, one a request and rank",
    "load_tokens": "tokens whose KV was loaded, a rank",
    "load_bytes": "bytes loaded and verified",
    "load_ms": "milliseconds that loads took, summed up",
    "load_chunks_bad": "chunks that were promised and had to be computed",
    "stores": "stores that were begun, one a step, request and rank",
    "store_chunks": "chunks that are in Larder after a store",
    "store_chunks_bad": "chunks that could not be stored",
    "store_bytes": "bytes stored",
    "stores_cancelled": "stores whose blocks were needed again",
    "breaker_opened": "times that Larder was left alone because it did not answer in time",
}


class LarderStats(KVConnectorStats):
    """Sums of one interval, by the names above."""

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, Any]:
        return {f"larder_{name}": round(value, 1) for name, value in self.data.items()}

    def is_empty(self) -> bool:
        return not self.data


class Counters:
    """Collects between two readings of the engine."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def add(self, **values: float) -> None:
        for name, value in values.items():
            if value:
                self._since[name] = self._since.get(name, 0) + value

    def take(self) -> LarderStats | None:
        if not self._since:
            return None
        taken, self._since = LarderStats(data=self._since), {}
        return taken


class LarderPromMetrics(KVConnectorPromMetrics):
    """vllm:larder_NAME on /metrics."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        made = metric_types[Counter]
        self._counters = {}
        for name, text in COUNTERS.items():
            counter = made(name=f"vllm:larder_{name}", documentation=f"Larder: {text}.", labelnames=labelnames)
            self._counters[name] = {
                engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()
            }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(value)
