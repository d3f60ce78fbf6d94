"""LarderConnector: vLLM's interface, and nothing of ours that could hurt the engine.

Every call goes through `_safe`: an exception is logged once, turns this half of the connector off, and the engine computes
what it would have loaded.
"""

# mypy: ignore-errors
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import vllm
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger

from larder_kv.engine.model import UnservedError
from larder_kv.vllm import compatibility, identity, layout, options
from larder_kv.vllm.link import Link
from larder_kv.vllm.metadata import Promise, StepMetadata, WorkerReport
from larder_kv.vllm.scheduler import SchedulerSide
from larder_kv.vllm.stats import LarderPromMetrics, LarderStats
from larder_kv.vllm.worker import WorkerSide

# Below vLLM's own logger, so that its configuration holds.
log: logging.Logger = init_logger("vllm.larder_kv")


class LarderConnector(KVConnectorBase_V1, SupportsHMA):
    """Keeps prefixes in a Larder cluster and gets them back. See client/python/VLLM.md."""

    requires_kv_delivery = False  # a cache: what was not stored is computed again

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._off = ""
        self._half: SchedulerSide | WorkerSide | None = None
        self._link: Link | None = None
        self._geometry = None
        self._offered_async: dict[str, bool] = {}  # scheduler: how the last offer to a request would load
        self._publishes = False  # scheduler: KV events
        self._lost: list[Promise] = []  # worker: promised and sure not to come
        self._lost_blocks: set[int] = set()
        self._promised: list[Promise] = []  # scheduler: to the engine in this step; worker: not answered yet
        try:
            self._begin(vllm_config, role, kv_cache_config)
        except (UnservedError, ValueError) as error:
            self._turn_off(str(error))
        except Exception as error:
            self._turn_off(f"{type(error).__name__}: {error}", error)

    def _begin(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        transfer = vllm_config.kv_transfer_config
        chosen, warnings = options.parse(transfer.kv_connector_extra_config)
        if transfer.kv_load_failure_policy != "recompute":
            warnings.append(
                f'kv_load_failure_policy is "{transfer.kv_load_failure_policy}": a block that is lost on its way '
                'fails its request; set "recompute"'
            )
        if role == KVConnectorRole.SCHEDULER:  # once, not once a rank
            for warning in warnings:
                log.warning("Larder: %s", warning)
        compatibility.check(vllm.__version__, KVConnectorBase_V1, log)
        self._geometry, fields = identity.describe(vllm_config, kv_cache_config, chosen)
        self._link = Link(chosen, fields, log)
        self._link.space(("", 0))  # bad names and weak hashes come to light here
        if self._link.off:
            raise UnservedError(self._link.off)
        if role == KVConnectorRole.SCHEDULER:
            ranks = (
                vllm_config.parallel_config.tensor_parallel_size * vllm_config.parallel_config.pipeline_parallel_size
            )
            overlapping = vllm_config.max_concurrent_batches > 1
            self._half = SchedulerSide(self._geometry, chosen, self._link, transfer.kv_role, ranks, overlapping, log)
            self._publishes = bool(vllm_config.kv_events_config and vllm_config.kv_events_config.enable_kv_cache_events)
            log.info(
                "Larder: %d tokens a block (%d bytes), %d head groups, at %s",
                self._geometry.chunk_tokens,
                sum(map(self._geometry.chunk_bytes, self._geometry.groups)),
                self._geometry.head_groups,
                self._link.where,
            )

    # --- safety

    def _turn_off(self, why: str, error: BaseException | None = None) -> None:
        if not self._off:
            self._off = why
            log.warning("Larder: off, the engine serves without: %s", why, exc_info=error)
            if self._link is not None and self._role == KVConnectorRole.WORKER:
                try:
                    self._link.close()  # returns when no byte can land in the engine's blocks any more
                except Exception as again:
                    log.warning("Larder: %s while closing", again)

    def _safe(self, default: Any, call: Callable[..., Any], *arguments: Any) -> Any:
        if self._off or self._half is None:
            return default
        try:
            return call(*arguments)
        except Exception as error:
            self._turn_off(f"{type(error).__name__}: {error}", error)
            return default

    # --- scheduler

    def on_new_request(self, request: Any) -> None:
        self._safe(None, lambda: self._half.begin(request))

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        offer = self._safe((0, False), lambda: self._half.offer(request, num_computed_tokens))
        if offer[0]:
            self._offered_async[request.request_id] = offer[1]
        return offer

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        block_ids = blocks.get_block_ids()
        if num_external_tokens > 0:  # from here on the engine counts on it, whatever becomes of us
            every = {block for ids in block_ids for block in ids}
            self._promised.append(
                Promise(request.request_id, every, not self._offered_async.get(request.request_id, False))
            )
        self._safe(None, lambda: self._half.allocated(request, block_ids, num_external_tokens))

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        meta = self._safe(None, lambda: self._half.step(scheduler_output)) or StepMetadata()
        planned = {job.request for job in meta.loads}
        meta.lost = [promise for promise in self._promised if promise.request not in planned]
        self._promised = []
        return meta

    def update_connector_output(self, connector_output: Any) -> None:
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, WorkerReport) and report.off:
            self._turn_off(f"a worker is off: {report.off}")
        self._safe(None, lambda: self._half.heard(report if isinstance(report, WorkerReport) else None))

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        self._offered_async.pop(request.request_id, None)
        self._safe(None, lambda: self._half.finish(request))
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, [])

    def reset_cache(self) -> bool | None:
        return self._safe(None, lambda: self._half.reset())

    def take_events(self) -> Iterable[Any]:
        events = self._safe([], lambda: self._half.events()) if self._role == KVConnectorRole.SCHEDULER else []
        return events if self._publishes else []

    # --- worker

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        if self._off:
            return
        try:
            memories = layout.memories(self._vllm_config, self._kv_cache_config, self._geometry, kv_caches)
            self._half = WorkerSide(self._geometry, self._link, memories, log)
        except (UnservedError, ValueError) as error:
            self._turn_off(str(error))
        except Exception as error:
            self._turn_off(f"{type(error).__name__}: {error}", error)

    def handle_preemptions(self, kv_connector_metadata: StepMetadata) -> None:
        self._safe(None, lambda: self._half.make_way(kv_connector_metadata.fresh))

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        meta = self._get_connector_metadata()
        for job in meta.loads:
            blocks = {block for run in job.runs for block in run.blocks if block >= 0}
            self._promised.append(Promise(job.request, blocks, job.waits))
        self._safe(None, lambda: self._half.load(meta))
        if not self._off:
            self._promised = [
                promise for promise in self._promised if not promise.waits
            ]  # the worker has their outcome
        self._lost += meta.lost

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # what a forward pass needs is there before it begins

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        pass  # whole blocks are stored after the pass

    def wait_for_save(self) -> None:
        meta = self._get_connector_metadata()
        if self._lost:
            meta.stores = []  # computed from blocks that were never loaded
        self._safe(None, lambda: self._half.store(meta))

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        idle = self._get_connector_metadata().idle
        came, failed = self._safe((set(), set()), lambda: self._half.came(idle))
        if self._off:  # nothing can land any more, so what was promised has failed
            self._lost += self._promised
            self._promised = []
        else:
            self._promised = [promise for promise in self._promised if promise.request not in came]
        gone = {promise.request for promise in self._lost if not promise.waits}
        self._lost_blocks = {block for promise in self._lost for block in promise.blocks}
        self._lost = []
        several = len(self._kv_cache_config.kv_cache_groups) > 1
        return KVConnectorTransferResults(set(), came | gone, failed | (gone if several else set()))

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return None, self.get_transfer_results(finished_req_ids).finished_recving or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        lost, self._lost_blocks = self._lost_blocks, set()
        if len(self._kv_cache_config.kv_cache_groups) > 1:
            return set()  # the engine takes failed requests instead
        return lost | self._safe(set(), lambda: self._half.bad_blocks())

    def build_connector_worker_meta(self) -> WorkerReport | None:
        if self._off:
            return WorkerReport(off=self._off)
        return self._safe(None, lambda: self._half.report())

    # --- both

    def get_kv_connector_stats(self) -> LarderStats | None:
        return self._safe(None, lambda: self._half.counters.take())

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> LarderStats:
        return LarderStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any
    ) -> LarderPromMetrics:
        return LarderPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        half, self._half = self._half, None
        try:
            if half is not None:
                half.close()
            elif self._link is not None:
                self._link.close()
        except Exception as error:
            log.warning("Larder: %s at shutdown", error)


if LarderConnector.__name__ not in KVConnectorFactory._registry:  # MultiConnector's statistics ask for a name alone
    KVConnectorFactory.register_connector(LarderConnector.__name__, "larder_kv.vllm", LarderConnector.__name__)
