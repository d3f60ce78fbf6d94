"""The scheduler's half of the connector: decides what is offered, loaded and stored. Moves no byte of KV."""

# mypy: ignore-errors
from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

import larder_kv
from larder_kv._enums import Retention
from larder_kv.engine.breaker import Breaker
from larder_kv.vllm.events import Events
from larder_kv.vllm.geometry import NULL_BLOCK, Geometry, Group
from larder_kv.vllm.identity import lora_digest
from larder_kv.vllm.link import Link
from larder_kv.vllm.lookups import FIRST_WAIT_MS, FRESH_S, LATER_WAIT_MS, Lookup, drain
from larder_kv.vllm.metadata import Done, Job, Run, StepMetadata, WorkerReport
from larder_kv.vllm.options import Options
from larder_kv.vllm.pace import Pace
from larder_kv.vllm.requests import RequestState
from larder_kv.vllm.stats import Counters
from larder_kv.vllm.turns import retention_of

STORE_MS = 20000.0
CONSUMER_WAIT_MS = 1000.0  # a decode node's, where the proxy does not say how long prefill may take
RESET_MS = 10000.0
WAIT_MS_MAX = 60000.0  # for blocks that somebody is computing, whatever a request asks for


class SchedulerSide:
    """One thread, the engine's."""

    def __init__(
        self,
        geometry: Geometry,
        options: Options,
        link: Link,
        role: str,
        ranks: int,
        overlapping: bool,
        log: logging.Logger,
    ) -> None:
        """ranks: workers that report each job. overlapping: a step may be scheduled before the last one's outcome is known."""
        self._geometry = geometry
        self._options = options
        self._link = link
        self._log = log
        self._produces = role in ("kv_producer", "kv_both")
        self._consumes = role in ("kv_consumer", "kv_both")
        self._waits = role == "kv_consumer"
        self._ranks = ranks  # that report a job each
        self._overlapping = overlapping
        # A load within a step that fails spoils the step. One rank notices in time to store nothing of it, others don't; and
        # with several groups the engine can't be told of single bad blocks.
        self._async = options.load_async or len(geometry.groups) > 1 or ranks > 1 or overlapping
        self._requests: dict[str, RequestState] = {}
        self._loads: list[Job] = []
        self._fresh: set[int] = set()
        self._epoch = 0
        self._queue: Any = None
        self._breaker = Breaker()
        self._pace = Pace()
        self._step: tuple[float, int] | None = None  # when the step under way began, and its tokens
        self._events = Events(geometry)
        self.counters = Counters()

    # --- a request begins

    def begin(self, request: Any) -> None:
        try:
            lora = lora_digest(getattr(request, "lora_request", None))
        except OSError:
            return  # the engine will say what is wrong with the adapter
        state = self._requests[request.request_id] = RequestState(request, lora)
        if self._may_load(state):
            self._ask(state)  # the answer is often there by the time the request is first scheduled

    def _may_load(self, state: RequestState) -> bool:
        return self._consumes and not state.failed and not getattr(state.request, "skip_reading_prefix_cache", False)

    def _ask(self, state: RequestState) -> None:
        self._drop_lookup(state)
        state.asked = True
        chunks = self._geometry.whole_chunks(len(state.hashes))
        client = self._link.client
        if chunks == 0 or client is None or not self._breaker.allows(time.monotonic()):
            return
        if self._queue is None:
            self._queue = client.queue()
        space = self._link.space((state.lora, self._epoch))
        pin_ms = 1000 * FRESH_S + self._options.deadline_ms
        lookup = Lookup(state.request.request_id, chunks, client.release, pin_ms)
        keys = self._geometry.keys(state.hashes, 0, chunks)
        try:
            lookup.begin(space, self._queue, self._geometry, keys, self._wait_ms(state))
        except larder_kv.Error:
            lookup.let_go()
            return self._failed("a lookup")
        state.lookup = lookup
        self.counters.add(lookups=1)

    def _drop_lookup(self, state: RequestState) -> None:
        """Of a request that waits: the next offer asks anew."""
        if state.lookup is not None:
            state.lookup.let_go()
        state.lookup, state.asked = None, False

    def _wait_ms(self, state: RequestState) -> float:
        """How long a decode node waits for a prefill that is under way. A proxy says it: {"larder_wait_ms": 10000}."""
        asked = (getattr(state.request, "kv_transfer_params", None) or {}).get("larder_wait_ms")
        if isinstance(asked, (int, float)) and not isinstance(asked, bool) and math.isfinite(asked) and asked > 0:
            return min(float(asked), WAIT_MS_MAX)
        if not self._waits:
            return 0.0
        computing = self._pace.compute_ms(state.request.num_prompt_tokens)
        return min(2 * computing, self._options.deadline_ms) if computing else CONSUMER_WAIT_MS

    # --- what is offered

    def offer(self, request: Any, local_tokens: int) -> tuple[int | None, bool]:
        """Tokens beyond the local ones that can be loaded, None: ask later; and whether they load between steps."""
        state = self._requests.get(request.request_id)
        if state is None:
            return 0, False
        state.local_tokens = local_tokens
        if not self._may_load(state):
            return 0, False
        first = not state.asked
        if first or (state.lookup is not None and state.lookup.stale):
            self._ask(state)
        lookup = state.lookup
        if lookup is None:
            return 0, False
        if not self._settled(lookup, first):
            return None, False
        state.present = {chunk for chunk in range(lookup.chunks) if all(row[chunk] for row in lookup.present)}
        most = min(self._geometry.offer_tokens_max(request.num_tokens), lookup.chunks * self._geometry.chunk_tokens)
        tokens = self._geometry.usable_tokens(lookup.present, local_tokens, most)
        in_time = self._pace.tokens_in_time(local_tokens, tokens, self._geometry.chunk_tokens, lookup.load_ms)
        if in_time < tokens:
            self.counters.add(loads_too_late=int(not lookup.too_late))
            lookup.too_late = True
            tokens = self._geometry.usable_tokens(lookup.present, local_tokens, in_time)
        if tokens <= local_tokens or not self._pace.worth_loading(tokens - local_tokens):
            return 0, False
        return tokens - local_tokens, self._async

    def _settled(self, lookup: Lookup, first: bool) -> bool:
        if lookup.done:
            return True

        def answered(other: Lookup) -> None:
            if other is lookup:  # which is loaded at once
                self._heard_lookup(other)
            else:
                self._answered_meanwhile(other)

        drain(self._queue, FIRST_WAIT_MS if first else LATER_WAIT_MS, answered)
        while not lookup.done and not self._options.lookup_async:
            drain(self._queue, 100, answered)
        return lookup.done

    def _heard_lookup(self, lookup: Lookup) -> None:
        if lookup.unreached:
            self._failed("a lookup")
        else:
            self._breaker.succeeded()

    def _fetch_ahead(self, lookup: Lookup) -> None:
        """For a request that waits its turn: what of its prefix lies on SSD comes up meanwhile."""
        state = self._requests.get(lookup.request)
        if state is None or state.lookup is not lookup:
            return  # it was admitted, or is gone
        space = self._link.space((state.lora, self._epoch))
        if space is None:
            return
        chunks, geometry = lookup.chunks, self._geometry
        usable = geometry.usable_tokens(lookup.present, 0, chunks * geometry.chunk_tokens) // geometry.chunk_tokens
        try:
            asked = lookup.fetch_ahead(space, self._queue, geometry, geometry.keys(state.hashes, 0, chunks), usable)
        except larder_kv.Error:
            return  # only a hint
        if asked:
            self.counters.add(prefetches=asked)

    def _answered_meanwhile(self, lookup: Lookup) -> None:
        self._heard_lookup(lookup)
        self._fetch_ahead(lookup)

    def _failed(self, what: str) -> None:
        was = self._breaker.is_open
        self._breaker.failed(time.monotonic())
        if self._breaker.is_open and not was:
            self._log.warning("Larder: %s was not answered in time, again; leaving it alone for a while", what)
            self.counters.add(breaker_opened=1)

    # --- blocks were allocated

    def allocated(self, request: Any, block_ids: tuple[list[int], ...], external_tokens: int) -> None:
        state = self._requests.get(request.request_id)
        if state is None:
            return
        state.admitted = True
        for group in self._geometry.groups:
            self._fresh.update(block_ids[group.number][state.local_tokens // group.block_tokens :])
        if external_tokens > 0:
            tokens = state.local_tokens + external_tokens
            runs = [self._load_run(state, group, block_ids[group.number], tokens) for group in self._geometry.groups]
            deadline = self._pace.deadline_ms(external_tokens, self._options.deadline_ms)
            if None not in runs:  # else nothing is planned, and the worker reports all blocks
                self._loads.append(
                    Job(request.request_id, (state.lora, self._epoch), runs, external_tokens, deadline, not self._async)
                )
                self._end_loading(state)
                state.loading, state.lookup = state.lookup, None
                state.loads_open += self._ranks
            chunks = -(-tokens // self._geometry.chunk_tokens)
            space = self._link.space((state.lora, self._epoch))
            if space is not None:
                self._hint(space.touch, self._geometry.keys(state.hashes, 0, chunks), usable=chunks)
        self._drop_lookup(state)  # after a preemption it is looked up anew

    def _hint(self, call: Callable[..., None], *arguments: Any, **more: Any) -> None:
        """One way, for all groups: what does not get through is no loss."""
        try:
            call(*arguments, groups=[group.number for group in self._geometry.groups], **more)
        except larder_kv.Error as error:
            self._log.debug("Larder: a hint was not sent: %s", error)

    def _load_run(self, state: RequestState, group: Group, table: list[int], tokens: int) -> Run | None:
        """Blocks that are here already, that the window has left, or that the offer ends before are not written. None when
        the engine has no block for something that it must have."""
        needed = self._geometry.needed(group, state.local_tokens, tokens)
        per, size = self._geometry.blocks_per_chunk(group), group.block_tokens
        first, end = max(state.local_tokens, group.first_token(tokens)) // size, tokens // size
        if end > len(table) or NULL_BLOCK in table[first:end]:
            self._log.warning("Larder: the engine has no blocks for %d tokens of group %d", tokens, group.number)
            return None
        blocks = [table[at] if first <= at < end else -1 for at in range(needed.start * per, needed.stop * per)]
        return Run(group.number, needed.start, self._geometry.keys(state.hashes, needed.start, needed.stop), blocks)

    # --- a step

    def step(self, output: Any) -> StepMetadata:
        if self._queue is not None:
            drain(self._queue, 0, self._answered_meanwhile)
        meta = StepMetadata(loads=self._loads, fresh=self._fresh, idle=output.total_num_scheduled_tokens == 0)
        self._loads, self._fresh = [], set()
        cached = output.scheduled_cached_reqs
        for new in cached.new_block_ids:
            for ids in new or ():
                meta.fresh.update(ids)
        if self._produces and self._link.client is not None and not self._breaker.is_open:
            for name, scheduled in output.num_scheduled_tokens.items():
                state = self._requests.get(name)
                if state is not None and (job := self._store_job(state, scheduled, output.kv_connector_block_state)):
                    state.stores_open += self._ranks
                    meta.stores.append(job)
        # Where steps overlap, a step's end says nothing about when it began.
        self._step = None if meta.loads or self._overlapping else (time.monotonic(), output.total_num_scheduled_tokens)
        return meta

    def _store_job(self, state: RequestState, scheduled: int, tables: Any) -> Job | None:
        """Chunks that are whole once this step has been computed."""
        if state.stale:
            return None
        request, geometry = state.request, self._geometry
        tokens = min(request.num_computed_tokens + scheduled, len(state.hashes) * geometry.hash_tokens)
        if not self._options.save_decode_cache:
            tokens = min(tokens, request.num_prompt_tokens)
        end = tokens // geometry.chunk_tokens
        wanted = [chunk for chunk in range(state.next_store, end) if chunk not in state.present]
        state.next_store = max(state.next_store, end)
        block_ids = tables.get_block_ids(request.request_id) if wanted else None
        if block_ids is None:
            return None
        runs = [
            run for group in geometry.groups for run in self._store_runs(state, group, block_ids[group.number], wanted)
        ]
        if not runs:
            return None
        return Job(request.request_id, (state.lora, self._epoch), runs, len(wanted) * geometry.chunk_tokens, STORE_MS)

    def _store_runs(self, state: RequestState, group: Group, table: list[int], wanted: list[int]) -> list[Run]:
        per, runs = self._geometry.blocks_per_chunk(group), []
        begin = None
        for at, chunk in enumerate(wanted):
            blocks = table[chunk * per : (chunk + 1) * per]
            whole = len(blocks) == per and NULL_BLOCK not in blocks  # else its window has passed
            if whole and begin is None:
                begin = chunk
            last = at + 1 == len(wanted) or wanted[at + 1] != chunk + 1
            if begin is not None and (last or not whole):
                stop = chunk + 1 if whole else chunk
                runs.append(
                    Run(
                        group.number,
                        begin,
                        self._geometry.keys(state.hashes, begin, stop),
                        table[begin * per : stop * per],
                        self._geometry.constituents(state.hashes, begin, stop),
                    )
                )
                begin = None
        return runs

    # --- what workers report

    def heard(self, report: WorkerReport | None) -> None:
        if self._step is not None:
            began, tokens = self._step
            self._step = None
            self._pace.computed(tokens, (time.monotonic() - began) * 1000)
        if report is None:
            return
        for done in report.loads:
            self._loaded(done)
        for done in report.stores:
            self._stored(done)

    def _loaded(self, done: Done) -> None:
        state = self._requests.get(done.request)
        if done.unreached:
            self._failed("a load")
        elif done.bad == 0:
            self._breaker.succeeded()
            self._pace.loaded(done.tokens, done.took_ms)
        if state is None:
            return
        state.loads_open -= 1
        if state.loads_open == 0:
            self._end_loading(state)
        if done.bad:
            state.failed = True
            state.present.clear()
            state.next_store = 0  # computed anew, so stored anew: the copy that failed may be gone
        else:
            state.loaded_tokens = max(state.loaded_tokens, done.tokens)
        state.load_ms = max(state.load_ms, done.took_ms)

    def _end_loading(self, state: RequestState) -> None:
        if state.loading is not None:
            state.loading.let_go()
            state.loading = None

    def _stored(self, done: Done) -> None:
        if done.unreached:
            self._failed("a store")
        state = self._requests.get(done.request)
        if state is None:
            return
        state.stores_open -= 1
        if done.good and not done.bad:
            state.stored_tokens += done.tokens // self._ranks
            state.store_ms = max(state.store_ms, done.took_ms)
            self._events.stored(state, done.stored)
        if state.finished:
            self._end(state)

    # --- a request ends

    def events(self) -> list[Any]:
        return self._events.take()

    def finish(self, request: Any) -> None:
        state = self._requests.get(request.request_id)
        if state is not None:
            state.finished = True
            self._drop_lookup(state)
            self._end_loading(state)
            self._end(state)

    def _end(self, state: RequestState) -> None:
        """Says what happened once the last store is known."""
        if state.stores_open > 0:
            return
        name = state.request.request_id
        if self._requests.get(name) is state:
            del self._requests[name]
            self._finish_turn(state)
        if story := state.story(self._link.where):
            self._log.info("%s", story)

    def _finish_turn(self, state: RequestState) -> None:
        """Nodes hear what is to be expected of its blocks."""
        retention = retention_of(state.request, self._options.tool_call_tokens)
        chunks = self._geometry.whole_chunks(len(state.hashes))
        if retention is Retention.NONE or chunks == 0 or self._breaker.is_open or self._link.client is None:
            return
        space = self._link.space((state.lora, self._epoch))
        if space is not None:
            self._hint(space.finish_turn, self._geometry.keys(state.hashes, 0, chunks), retention)

    # --- weights were reloaded

    def reset(self) -> bool:
        """Forgets this namespace on every node. Nobody knows which weights these are now, so the next one is shared with
        nobody: a number that was counted up would meet that of another engine, or of this one's next life."""
        self._link.space(("", self._epoch))
        spaces = self._link.opened(self._epoch)
        self._epoch = secrets.randbits(62) + 1
        for state in self._requests.values():
            self._drop_lookup(state)
            state.next_store = 0
            state.present.clear()
            state.stale = state.stale or state.admitted
        if not spaces:
            self._log.warning(
                "Larder: no node can be reached, so nothing was cleared; new weights use a new namespace anyway"
            )
            return False
        try:
            removed = sum(space.clear(deadline_ms=RESET_MS) for space in spaces)
        except Exception as error:
            self._log.warning("Larder: not every node has cleared its blocks: %s", error)
            return False
        self._log.info("Larder: cleared %d blocks; from now on nothing is shared with other engines", removed)
        return True

    def close(self) -> None:
        self._link.close()
