"""LarderL2Adapter: LMCache's interface to its second level. No exception leaves it: its controllers' threads would end."""

# mypy: ignore-errors
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import lmcache
from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface

import larder_kv
from larder_kv import Extents, Outcome, Priority, PutState
from larder_kv.engine import answers
from larder_kv.engine.guard import Guard
from larder_kv.engine.link import Link
from larder_kv.engine.model import UnservedError
from larder_kv.lmcache import compatibility, options
from larder_kv.lmcache.locks import Locks
from larder_kv.lmcache.models import Models
from larder_kv.lmcache.objects import HASH_BYTES_MIN, fields_of, key_of, layout_of
from larder_kv.lmcache.tasks import Kind, Task, Tasks

log: logging.Logger = init_logger("lmcache.larder_kv")

PIN_MS = 30000.0  # from a lookup to its load; nodes let go of it by themselves
POLL_MS = 200.0


class LarderL2Adapter(L2AdapterInterface):
    """Keeps objects in a Larder cluster and gets them back. See client/python/LMCACHE.md.

    Any thread may submit; one thread of ours hears completions and signals LMCache's three events.
    """

    def __init__(self, adapter_params: dict[str, Any], l1_memory_desc: Any = None) -> None:
        super().__init__()
        self._tasks = Tasks()
        self._guard = Guard(log)
        self._locks = Locks()
        self._layouts: dict[str, set[str]] = {}  # of each model, as far as they came by
        self._memory = l1_memory_desc
        self._link: Link | None = None
        self._queue: larder_kv.Queue | None = None
        self._queue_lock = threading.Lock()
        self._opened, self._closing = threading.Event(), threading.Event()
        try:
            self._begin(adapter_params)
        except (UnservedError, ValueError) as error:
            self._guard.turn_off(str(error))
        except Exception as error:
            self._guard.turn_off(f"{type(error).__name__}: {error}", error)
        self._thread = threading.Thread(target=self._hear, name="larder-lmcache", daemon=True)
        self._thread.start()

    def _begin(self, adapter_params: dict[str, Any]) -> None:
        self._options, warnings = options.parse(adapter_params)
        for warning in warnings:
            log.warning("Larder: %s", warning)
        compatibility.check(lmcache.__version__, L2AdapterInterface, log)
        self._models = Models(self._options.weights, log)
        self._link = Link(self._options, "lmcache", log)
        if self._link.off:
            raise UnservedError(self._link.off)

    # --- events

    def get_store_event_fd(self) -> int:
        return self._tasks.event_fd(Kind.STORE)

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._tasks.event_fd(Kind.LOOKUP)

    def get_load_event_fd(self) -> int:
        return self._tasks.event_fd(Kind.LOAD)

    # --- tasks

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        def put(space: larder_kv.Namespace, token: Any, hashes: list[bytes], at: list[int]) -> None:
            extents = Extents.of([objects[index].byte_array for index in at], False)
            space.submit_put(self._port(), token, hashes, extents, priority=Priority.BATCH)

        return self._submit(Kind.STORE, keys, self._of_objects(objects), put, [each.get_size() for each in objects])

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: dict[int, Any]) -> int:
        def layout(index: int) -> str:
            described = group_layout_descs.get(keys[index].object_group_id)
            return "" if described is None else layout_of(described.shapes, described.dtypes)

        def match(space: larder_kv.Namespace, token: Any, hashes: list[bytes], at: list[int]) -> None:
            space.submit_match(self._port(), token, hashes, pin_ms=PIN_MS)

        return self._submit(Kind.LOOKUP, keys, layout, match)

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        def get(space: larder_kv.Namespace, token: Any, hashes: list[bytes], at: list[int]) -> None:
            extents = Extents.of([objects[index].byte_array for index in at])
            space.submit_get(self._port(), token, hashes, extents, priority=Priority.INTERACTIVE)

        return self._submit(Kind.LOAD, keys, self._of_objects(objects), get)

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        done = self._tasks.take_all(Kind.STORE)
        return {task.number: L2StoreResult(all(task.good), task.nbytes) for task in done}

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        return self._bitmap(self._tasks.take(Kind.LOOKUP, task_id))

    def query_load_result(self, task_id: int) -> Bitmap | None:
        return self._bitmap(self._tasks.take(Kind.LOAD, task_id))

    @staticmethod
    def _bitmap(task: Task | None) -> Bitmap | None:
        if task is None:
            return None
        bitmap = Bitmap(len(task.keys))
        for index, good in enumerate(task.good):
            if good:
                bitmap.set(index)
        return bitmap

    def submit_unlock(self, keys: list[Any]) -> None:
        for handle in self._locks.drop(keys):
            try:
                self._link.client.release(handle)
            except Exception as error:  # nodes let go of it by themselves
                log.debug("Larder: a pin was not given back: %s", error)

    # --- keys

    def delete(self, keys: list[Any]) -> None:
        """From every layout of its model that came by in this process."""

        def remove() -> tuple[None, bool]:
            for key in keys:
                for layout in tuple(self._layouts.get(key.model_name, ())):
                    space = self._space(key.model_name, layout)
                    if space is not None:
                        space.remove([key_of(key)])
            return None, True

        self._guard.ask("a removal", None, remove)
        self._tell(self._notify_keys_deleted, keys, [0] * len(keys))

    def get_usage(self) -> AdapterUsage:
        """Unknown: nodes have their own bounds and evict by themselves."""
        return AdapterUsage(0, 0)

    def report_status(self) -> dict[str, Any]:
        client = self._link.client if self._link is not None else None
        return {
            "is_healthy": not self._guard.off and client is not None,
            "type": type(self).__name__,
            "where": self._link.where if self._link is not None else "",
            "off": self._guard.off,
            "locked_lookups": len(self._locks),
        }

    def close(self) -> None:
        """Returns when no byte can land in LMCache's memory any more; the events are closed then."""
        self._guard.off = self._guard.off or "closed"
        self._closing.set()
        self._opened.set()
        self._thread.join()
        try:
            if self._link is not None:
                self._link.close()  # which lets go of the memory that was registered
        except Exception as error:
            log.warning("Larder: %s while closing", error)
        self._queue = None
        self._tasks.close()

    # --- how

    def _of_objects(self, objects: Sequence[Any]) -> Callable[[int], str]:
        return lambda index: layout_of(objects[index].get_shapes(), objects[index].get_dtypes())

    def _submit(
        self,
        kind: Kind,
        keys: list[Any],
        layout: Callable[[int], str],
        begin: Callable[..., None],
        sizes: Sequence[int] = (),
    ) -> int:
        task = self._tasks.begin(kind, keys, sizes)
        try:
            if self._guard.allows():
                self._begin_operations(task, layout, begin)
        except Exception as error:
            self._guard.turn_off(f"{kind.value}: {type(error).__name__}: {error}", error)
        self._safely_ended(task)
        return task.number

    def _begin_operations(self, task: Task, layout: Callable[[int], str], begin: Callable[..., None]) -> None:
        """One for each model and layout, which is nearly always one."""
        parts: dict[tuple[str, str], list[int]] = {}
        for index, key in enumerate(task.keys):
            parts.setdefault((key.model_name, layout(index)), []).append(index)
        for (model, its_layout), at in parts.items():
            if any(len(task.keys[index].chunk_hash) < HASH_BYTES_MIN for index in at):
                self._guard.turn_off("LMCache's hashes are too short to be told apart: run it with --hash-algorithm blake3")
                return
            self._tasks.opened(task)
            try:
                space = self._space(model, its_layout)
                if space is None:
                    self._ended(task)
                    continue
                hashes = [key_of(task.keys[index]) for index in at]
                begin(space, (task, at, space, hashes), hashes, at)
            except larder_kv.Error as error:
                log.debug("Larder: %s did not begin: %s", task.kind.value, error)
                self._guard.heard(task.kind.value, False)
                self._ended(task)
            except Exception:
                self._ended(task)
                raise

    def _space(self, model: str, layout: str) -> larder_kv.Namespace | None:
        """None: no node has answered yet, or nobody knows the model's weights."""
        if self._link.off:
            self._guard.turn_off(self._link.off)
        digest = self._models.digest(model)
        if self._link.client is None or not digest or not layout:
            return None
        self._layouts.setdefault(model, set()).add(layout)
        prefix = self._options.cache_prefix
        return self._link.namespace((model, layout), lambda: fields_of(model, digest, layout, prefix))

    def _port(self) -> larder_kv.Queue:
        with self._queue_lock:
            if self._queue is None:
                self._queue = self._link.client.queue()
                self._register()
                self._opened.set()
            return self._queue

    def _register(self) -> None:
        """Transports that gain by it know LMCache's memory; the others, and those that refuse it, need not."""
        memory = self._memory
        if memory is None or not memory.ptr:
            return
        stable = getattr(memory, "stable_registration_size", None)
        try:
            self._link.client.register(memory.ptr, memory.size if stable is None else stable)
        except larder_kv.Error as error:
            log.info("Larder: LMCache's memory is not registered: %s", error)

    # --- completions

    def _hear(self) -> None:
        self._opened.wait()
        while not self._closing.is_set():
            for completion in self._queue.poll(64, POLL_MS):
                task, at, space, hashes = completion.token
                try:
                    self._take(task, at, space, hashes, completion.result)
                except Exception as error:
                    self._guard.turn_off(f"{task.kind.value}: {type(error).__name__}: {error}", error)
                self._safely_ended(task)

    def _take(self, task: Task, at: list[int], space: larder_kv.Namespace, hashes: list[bytes], result: Any) -> None:
        if result is None:  # it ended early
            self._guard.heard(task.kind.value, False)
        elif task.kind is Kind.STORE:
            self._stored(task, at, result)
        elif task.kind is Kind.LOOKUP:
            self._found(task, at, result)
        else:
            self._loaded(task, at, space, hashes, result)

    def _stored(self, task: Task, at: list[int], result: larder_kv.PutResult) -> None:
        self._guard.heard(task.kind.value, answers.put(result))
        for index, state in zip(at, result.states, strict=True):
            task.good[index] = PutState(state).there
            if state == PutState.STORED:
                task.fresh.append(index)

    def _found(self, task: Task, at: list[int], result: larder_kv.MatchResult) -> None:
        self._guard.heard(task.kind.value, answers.matched(result))
        for index, presence in zip(at, result.presence, strict=True):
            task.good[index] = presence < 64
        found = [task.keys[index] for index in at if task.good[index]]
        if result.pin and found:
            now = time.monotonic()
            self._locks.add(result.pin, found, now + PIN_MS / 1000, now)

    def _loaded(
        self, task: Task, at: list[int], space: larder_kv.Namespace, hashes: list[bytes], result: larder_kv.GetResult
    ) -> None:
        self._guard.heard(task.kind.value, answers.got(result))
        for index, outcome in zip(at, result.outcomes, strict=True):
            task.good[index] = outcome == Outcome.HIT
        came = [one for one, outcome in zip(hashes, result.outcomes, strict=True) if outcome == Outcome.HIT]
        if came:
            space.touch(came, usable=len(came))

    def _safely_ended(self, task: Task) -> None:
        """A task that is submitted after the end has no event to signal."""
        try:
            self._ended(task)
        except OSError as error:
            log.debug("Larder: nobody hears of task %d: %s", task.number, error)

    def _ended(self, task: Task) -> None:
        if not self._tasks.ended(task):
            return
        came = [key for key, good in zip(task.keys, task.good, strict=True) if good]
        if task.kind is Kind.LOAD and came:
            self._tell(self._notify_keys_accessed, came)
        if task.fresh:
            sizes = [task.sizes[index] for index in task.fresh]
            self._tell(self._notify_keys_stored, [task.keys[index] for index in task.fresh], sizes)
        self._tasks.finish(task)

    def _tell(self, listeners: Callable[..., None], *arguments: Any) -> None:
        try:
            listeners(*arguments)
        except Exception as error:
            log.warning("Larder: a listener of LMCache failed: %s", error)
