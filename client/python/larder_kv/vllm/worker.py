"""A worker's half of the connector: moves the bytes of its rank between the engine's KV cache and Larder."""

# mypy: ignore-errors
from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np

from larder_kv import Extents, Outcome, Presence, Priority, PutState
from larder_kv.vllm.geometry import Geometry
from larder_kv.vllm.layout import GroupMemory
from larder_kv.vllm.link import Link
from larder_kv.vllm.metadata import Done, Job, Run, StepMetadata, WorkerReport
from larder_kv.vllm.stats import Counters

IDLE_WAIT_MS = 2.0  # of a step that computes nothing: it would only spin
REUSE_WAIT_MS = 100.0  # how long a block that is needed again is kept for a store that still reads it
STORES_OPEN_MAX = 256  # jobs; beyond them stores are given up, not queued
DRAIN_MS = 5000.0  # stores at shutdown
SLOW = (Presence.UNREACHABLE, Presence.TIMED_OUT)


class Transfer:
    """A job under way on this rank: as many operations as it has runs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.began_s = time.monotonic()
        self.open = 0
        self.operations: list[int] = []
        self.scratch: list[Any] = []  # memory of bytes that go nowhere
        self.bad_blocks: set[int] = set()
        self.cancelled = False
        self.done = Done(job.request, job.tokens, 0, 0, 0, 0.0)

    def ended(self) -> Done:
        self.done.took_ms = (time.monotonic() - self.began_s) * 1000
        return self.done

    def allocate(self, nbytes: int) -> int:
        memory = np.empty(nbytes, np.uint8)
        self.scratch.append(memory)
        return memory.ctypes.data


class WorkerSide:
    """One thread, the runner's. A block that is promised and not verified is reported, whatever happens."""

    def __init__(self, geometry: Geometry, link: Link, memories: dict[int, GroupMemory], log: logging.Logger) -> None:
        self._geometry = geometry
        self._link = link
        self._memories = memories
        self._log = log
        self._queue: Any = None
        self._loads: dict[str, Transfer] = {}
        self._stores: list[Transfer] = []
        self._came: set[str] = set()  # asynchronous loads that ended and were not reported yet
        self._failed: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._spoilt = False  # a load that this step's forward pass needed has failed
        self._report = WorkerReport()
        self.counters = Counters()

    # --- loads

    def load(self, meta: StepMetadata) -> None:
        begun = []
        for job in meta.loads:
            transfer = self._loads[job.request] = Transfer(job)
            self._begin_load(transfer)
            if job.waits:
                begun.append(transfer)
        while any(transfer.open for transfer in begun):
            self._poll(1000)
        for transfer in begun:
            self._spoilt |= bool(transfer.done.bad)

    def _begin_load(self, transfer: Transfer) -> None:
        job = transfer.job
        self.counters.add(loads=1)
        for run in job.runs:
            try:
                space = self._link.space(job.space)
                if space is None:
                    raise ConnectionError("no node can be reached")
                memory = self._memories[run.group]
                extents = Extents.at(memory.addresses(run.blocks, transfer.allocate), memory.extent_bytes)
                operation = space.submit_get(
                    self._port(),
                    (transfer, run),
                    run.keys,
                    extents,
                    groups=run.group,
                    rectangles=memory.share.rectangle,
                    deadline_ms=job.deadline_ms,
                    priority=Priority.INTERACTIVE,
                )
            except Exception as error:  # a load that does not begin has failed, no more
                self._log.debug("Larder: a load did not begin: %s", error)
                self._bad(transfer, run, range(len(run.keys) // 32))
                continue
            transfer.open += 1
            transfer.operations.append(operation)
        if transfer.open == 0:
            self._end_load(transfer)

    def _bad(self, transfer: Transfer, run: Run, chunks: Any) -> None:
        per = self._memories[run.group].blocks_per_chunk
        for chunk in chunks:
            transfer.done.bad += 1
            transfer.bad_blocks.update(block for block in run.blocks[chunk * per : (chunk + 1) * per] if block >= 0)

    def _loaded(self, transfer: Transfer, run: Run, result: Any) -> None:
        chunks = len(run.keys) // 32
        outcomes = result.outcomes if result is not None else b"\1" * chunks
        reasons = result.reasons if result is not None else b""
        bad = [chunk for chunk, outcome in enumerate(outcomes) if outcome != Outcome.HIT]
        self._bad(transfer, run, bad)
        transfer.done.good += chunks - len(bad)
        transfer.done.bytes += sum(result.sizes) if result is not None else 0
        transfer.done.unreached |= any(
            outcomes[chunk] == Outcome.OUT_OF_TIME or reasons[chunk : chunk + 1] in [bytes([each]) for each in SLOW]
            for chunk in bad
        )
        if transfer.open == 0:
            self._end_load(transfer)

    def _end_load(self, transfer: Transfer) -> None:
        job, done = transfer.job, transfer.ended()
        del self._loads[job.request]
        self._report.loads.append(done)
        if len(self._geometry.groups) == 1:
            self._bad_blocks |= transfer.bad_blocks
        elif done.bad:
            self._failed.add(job.request)
        if not job.waits:
            self._came.add(job.request)
        self.counters.add(
            load_ms=done.took_ms,
            load_bytes=done.bytes,
            load_chunks_bad=done.bad,
            load_tokens=0 if done.bad else done.tokens,
        )

    # --- stores

    def store(self, meta: StepMetadata) -> None:
        """After the forward pass: the blocks are whole. Their bytes are read later, where they are; `make_way` sees to it
        that they stay until then."""
        spoilt, self._spoilt = self._spoilt, False
        for job in meta.stores:
            transfer = Transfer(job)
            if spoilt or len(self._stores) >= STORES_OPEN_MAX:  # computed from what did not come: not the prefix's KV
                transfer.done.bad = sum(len(run.keys) // 32 for run in job.runs)
                self._report.stores.append(transfer.ended())
                continue
            self._stores.append(transfer)
            self._begin_store(transfer)

    def _begin_store(self, transfer: Transfer) -> None:
        job = transfer.job
        for run in job.runs:
            memory = self._memories[run.group]
            if not memory.share.writes:
                continue
            try:
                space = self._link.space(job.space)
                if space is None:
                    raise ConnectionError("no node can be reached")
                operation = space.submit_put(
                    self._port(),
                    (transfer, run),
                    run.keys,
                    Extents.at(memory.addresses(run.blocks), memory.extent_bytes),
                    groups=run.group,
                    rectangles=memory.share.rectangle,
                    constituents=run.constituents,
                    first_depth=run.first_chunk,
                    deadline_ms=job.deadline_ms,
                    priority=Priority.BATCH,
                )
            except Exception as error:
                self._log.debug("Larder: a store did not begin: %s", error)
                transfer.done.bad += len(run.keys) // 32
                continue
            transfer.open += 1
            transfer.operations.append(operation)
        self.counters.add(stores=1)
        if transfer.open == 0:
            self._end_store(transfer)

    def _stored(self, transfer: Transfer, run: Run, result: Any) -> None:
        chunks = len(run.keys) // 32
        states = result.states if result is not None else bytes([PutState.EXPIRED]) * chunks
        done = transfer.done
        for chunk, state in enumerate(states):
            if PutState(state).there:
                done.good += 1
                done.stored.append((run.group, run.first_chunk + chunk))
                done.bytes += self._memories[run.group].chunk_bytes if state == PutState.STORED else 0
            else:
                done.bad += 1
                done.unreached |= state == PutState.EXPIRED and not transfer.cancelled
        if transfer.open == 0:
            self._end_store(transfer)

    def _end_store(self, transfer: Transfer) -> None:
        self._stores.remove(transfer)
        done = transfer.ended()
        self._report.stores.append(done)
        self.counters.add(store_chunks=done.good, store_chunks_bad=done.bad, store_bytes=done.bytes)

    def make_way(self, fresh: set[int]) -> None:
        """Before anything is written into blocks: stores that still read them end first. This, not the life of a request, is
        what keeps wrong bytes from being stored under a right key: it covers preemption, windows and reuse alike."""
        self._poll(0)
        readers = [each for each in self._stores if any(not fresh.isdisjoint(run.blocks) for run in each.job.runs)]
        if not readers:
            return
        end = time.monotonic() + REUSE_WAIT_MS / 1000
        while any(each.open for each in readers) and time.monotonic() < end:
            self._poll(10)
        for each in readers:
            if each.open:
                self.counters.add(stores_cancelled=1)
                each.cancelled = True
                for operation in each.operations:
                    self._link.client.cancel(operation)
        while any(each.open for each in readers):
            self._poll(100)

    # --- completions

    def _port(self) -> Any:
        if self._queue is None:
            self._queue = self._link.client.queue()
        return self._queue

    def _poll(self, wait_ms: float) -> None:
        if self._queue is None:
            return
        while completions := self._queue.poll(64, wait_ms):
            wait_ms = 0
            for completion in completions:
                transfer, run = completion.token
                transfer.open -= 1
                if transfer.job.request in self._loads and self._loads[transfer.job.request] is transfer:
                    self._loaded(transfer, run, completion.result)
                else:
                    self._stored(transfer, run, completion.result)

    def came(self, idle: bool) -> tuple[set[str], set[str]]:
        """Requests whose asynchronous load ended, and those of them that failed as a whole."""
        self._poll(IDLE_WAIT_MS if idle and self._loads and not self._came else 0)
        came, self._came = self._came, set()
        failed, self._failed = self._failed, set()
        return came, failed

    def bad_blocks(self) -> set[int]:
        bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def report(self) -> WorkerReport | None:
        report, self._report = self._report, WorkerReport()
        return report if report.loads or report.stores else None

    def close(self) -> None:
        end = time.monotonic() + DRAIN_MS / 1000
        while self._stores and time.monotonic() < end:
            self._poll(100)
        self._link.close()
