"""LarderStorage: SGLang's interface. An exception would end its prefetch or backup thread, so none leaves.

A backend of SGLang with ``interface_v1`` moves pages of its host pool where they lie; without it, it copies each page through a
tensor. Both orders of bytes are different, so they are different pools here: "kv" and "values".
"""

# mypy: ignore-errors
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import sglang
from sglang.srt.mem_cache import hicache_storage
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolTransfer,
    PoolTransferResult,
)

from larder_kv import Extents
from larder_kv.engine.link import Link
from larder_kv.engine.model import UnservedError
from larder_kv.sglang import compatibility, identity, options
from larder_kv.sglang.cache import PageCache
from larder_kv.sglang.pages import Pages

log = logging.getLogger(__name__)

KV, VALUES = "kv", "values"
SAMPLES_MAX = 1024  # of metrics that nobody has fetched
SHARDED = {"mamba"}  # pools whose ranks hold different parts even where the model's KV cache is replicated


def _depth(extra_info: HiCacheStorageExtraInfo | None) -> int:
    return len(extra_info.prefix_keys or ()) if extra_info is not None else 0


class LarderStorage(HiCacheStorage):
    """Keeps pages in a Larder cluster and gets them back. See client/python/SGLANG.md."""

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: dict[str, Any] | None = None) -> None:
        self._config = storage_config
        self._cache: PageCache | None = None
        self._metrics_lock = threading.Lock()
        self._metrics: dict[str, list[float]] = {}
        extra = storage_config.extra_config or {}
        self._main = KV if extra.get("interface_v1") else VALUES
        try:
            self._begin(extra)
        except (UnservedError, ValueError) as error:
            log.warning("Larder: off, SGLang serves without: %s", error)
        except Exception as error:
            log.warning("Larder: off, SGLang serves without: %s: %s", type(error).__name__, error, exc_info=error)

    def _begin(self, extra: dict[str, Any]) -> None:
        chosen, warnings = options.parse(extra)
        if self._main == VALUES:
            warnings.append('without "interface_v1": 1 SGLang copies every page through a tensor')
        if self._config.tp_rank == 0:  # once, not once a rank
            for warning in warnings:
                log.warning("Larder: %s", warning)
        compatibility.check(sglang.__version__, hicache_storage, log)
        engine = identity.of_engine(chosen.cache_prefix)
        link = Link(chosen, "sglang", log)
        if link.off:
            raise UnservedError(link.off)
        self._cache = PageCache(link, engine, log)

    # --- pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._add(mem_pool_host, KV, VALUES)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        if str(host_pool_name) != KV:  # that one is there already
            self._add(host_pool, str(host_pool_name))

    def _add(self, host_pool: Any, *names: str) -> None:
        if self._cache is None:
            return
        try:
            pages = Pages(host_pool)
            for name in names:
                replicated = self._config.is_mla_model and name not in SHARDED
                writes = not replicated or self._config.tp_rank == self._config.dcp_rank
                self._cache.add(name, host_pool, pages, identity.of_rank(self._config, replicated), writes)
            if self._config.tp_rank == 0 and names[0] == KV:
                log.info("Larder: %d tokens a page (%d bytes)", pages.page_tokens, pages.page_bytes)
        except UnservedError as error:
            self._cache.guard.turn_off(str(error))
        except Exception as error:
            self._cache.guard.turn_off(f"{type(error).__name__}: {error}", error)

    # --- where pages lie

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        present = self._present(self._main, keys)
        return present.index(False) if False in present else len(present)

    def batch_get_v1(
        self, keys: list[str], host_indices: Any, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        return self._get(KV, keys, lambda: self._cache.pool(KV).pages.extents(keys, host_indices))

    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        where = lambda: self._cache.pool(KV).pages.extents(keys, host_indices)  # noqa: E731
        return self._put(KV, keys, where, _depth(extra_info))

    # --- models with several pools

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """A prefix can be restored when every pool has what it needs of it: all pages, or so many last ones."""
        count = self.batch_exists(keys, extra_info)
        hits = {hicache_storage.PoolName.KV: count} if count else {}
        restorable = set(range(1, count + 1))
        for transfer in pool_transfers or []:
            if transfer.hit_policy not in (PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES):
                continue  # such a pool has its own verdict, or none, and never shortens the prefix
            present = self._present(str(transfer.name), keys[:count])
            last = len(transfer.keys or ()) or 1
            trailing = transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES
            these = {
                end for end in range(1, count + 1) if all(present[max(0, end - last) if trailing else 0 : end])
            }
            if these:
                hits[transfer.name] = max(these)
            restorable &= these
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def batch_get_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        return {each.name: self._get(str(each.name), each.keys or [], self._of(each)) for each in transfers}

    def batch_set_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        depth = _depth(extra_info)
        return {each.name: self._put(str(each.name), each.keys or [], self._of(each), depth) for each in transfers}

    def _of(self, transfer: PoolTransfer) -> Callable[[], Extents | None]:
        name = str(transfer.name)
        return lambda: self._cache.pool(name).pages.extents(transfer.keys, transfer.host_indices)

    # --- pages as tensors

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        """Into the tensors that are given, each of a page's size, or into new ones."""
        missed = [None] * len(keys)
        cache = self._cache
        if cache is None or getattr(self, "mem_pool_host", None) is None:
            return missed
        try:
            targets = target_locations or [self.mem_pool_host.get_dummy_flat_data_page() for _ in keys]
            if len(targets) != len(keys):
                return missed
            came = self._get(VALUES, keys, lambda: Extents.of(targets))
        except Exception as error:
            cache.guard.turn_off(f"a load: {type(error).__name__}: {error}", error)
            return missed
        return [target if hit else None for target, hit in zip(targets, came, strict=True)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [target_location if value is None else value])

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        values = target_locations if values is None else values
        if values is None or len(values) != len(keys) or any(each is None for each in values):
            return False
        return all(self._put(VALUES, keys, lambda: Extents.of([each.contiguous() for each in values], False), 0))

    # --- all of it

    def clear(self) -> bool:
        cache = self._cache
        if cache is None:
            return False
        try:
            return cache.clear()
        except Exception as error:
            cache.guard.turn_off(f"{type(error).__name__}: {error}", error)
            return False

    def close(self) -> None:
        cache, self._cache = self._cache, None
        try:
            if cache is not None:
                cache.close()
        except Exception as error:
            log.warning("Larder: %s while closing", error)

    def get_stats(self) -> Any:
        """Pages a call and GB/s since it was last asked, where SGLang collects metrics of its storage."""
        if not self._config.enable_storage_metrics:
            return None
        try:
            from sglang.srt.observability.metrics_collector import StorageMetrics

            with self._metrics_lock:
                taken, self._metrics = self._metrics, {}
            return StorageMetrics(**taken)
        except Exception as error:
            log.debug("Larder: no metrics: %s", error)
            return None

    # --- how

    def _present(self, name: str, keys: Sequence[str]) -> list[bool]:
        cache = self._cache
        return cache.present(name, keys) if cache is not None else [False] * len(keys)

    def _get(self, name: str, keys: Sequence[str], into: Callable[[], Extents | None]) -> list[bool]:
        cache = self._cache
        if cache is None:
            return [False] * len(keys)
        began = time.monotonic()
        came = cache.get(name, keys, into)
        self._count("prefetch", name, sum(came), began)
        return came

    def _put(
        self, name: str, keys: Sequence[str], of: Callable[[], Extents | None], first_depth: int
    ) -> list[bool]:
        cache = self._cache
        if cache is None:
            return [False] * len(keys)
        pool = cache.pool(name)
        if pool is not None and not cache.writes(pool):
            return [True] * len(keys)  # another rank stores the same
        began = time.monotonic()
        stored = cache.put(name, keys, of, first_depth)
        self._count("backup", name, sum(stored), began)
        return stored

    def _count(self, what: str, name: str, pages: int, began_s: float) -> None:
        cache = self._cache
        pool = cache.pool(name) if cache is not None else None
        if pool is None or not pages or not self._config.enable_storage_metrics:
            return
        rate = pages * pool.pages.page_bytes / max(time.monotonic() - began_s, 1e-6) / (1 << 30)
        with self._metrics_lock:
            for kind, sample in (("pgs", pages), ("bandwidth", rate)):
                samples = self._metrics.setdefault(f"{what}_{kind}", [])
                if len(samples) < SAMPLES_MAX:
                    samples.append(sample)
