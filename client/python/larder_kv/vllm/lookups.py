"""What Larder has of a prompt: asked off the engine's critical path."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from larder_kv import Namespace, Queue
from larder_kv._enums import Presence, Priority
from larder_kv.vllm.geometry import Geometry

MATCH_MS = 1000.0  # a dead node is known to be so at once; this is for one that is busy
FIRST_WAIT_MS = 2.0  # an answer usually takes less; waiting so long saves a scheduling step
LATER_WAIT_MS = 0.2
FRESH_S = 2.0  # an older answer is asked for again
FETCH_MS = 10_000.0  # for blocks to come up from SSD
FETCHED = -1  # the completion of a prefetch, beside the rows of an answer


class Lookup:
    """One question about a chain: a match for each group, or a wait for all of them first. What is there stays there until
    let_go(), or for pin_ms: it must not be evicted between the offer and the load."""

    def __init__(self, request: str, chunks: int, release: Callable[[int], None], pin_ms: float) -> None:
        self.request = request  # whose prefix it is, by the engine's id
        self.chunks = chunks
        self._release, self._pin_ms = release, pin_ms
        self._pins: list[int] | None = []  # None: let go
        self.present: list[list[bool]] = []
        self.asked_s = time.monotonic()
        self.done_s = 0.0
        self.unreached = False
        self.too_late = False  # not all of it was offered: computing was expected to be sooner
        self._load_us: dict[int, list[int]] = {}  # of each group's row, the nodes' estimate until a chunk is here
        self._cold: dict[int, list[int]] = {}  # of each group's row, the chunks on SSD
        self._open = 0

    @property
    def done(self) -> bool:
        return self._open == 0

    @property
    def stale(self) -> bool:
        return self.done and time.monotonic() - self.done_s > FRESH_S

    def begin(self, space: Namespace, queue: Queue, geometry: Geometry, keys: bytes, wait_ms: float) -> None:
        """wait_ms: how long blocks that somebody is computing now are waited for; 0: what is there counts."""
        self.present = [[False] * self.chunks for _ in geometry.groups]
        groups = [group for group in geometry.groups if not group.window_tokens] or list(geometry.groups)
        if wait_ms > 0:
            for group in groups:
                rectangle = (0, group.layers, 0, geometry.head_groups)
                self._open += 1
                space.submit_wait(
                    queue,
                    (self, lambda: self._ask(space, queue, geometry, keys)),
                    keys,
                    groups=[group.number],
                    rectangle=rectangle,
                    deadline_ms=wait_ms,
                )
        else:
            self._ask(space, queue, geometry, keys)

    def _ask(self, space: Namespace, queue: Queue, geometry: Geometry, keys: bytes) -> None:
        for row, group in enumerate(geometry.groups):
            rectangle = (0, group.layers, 0, geometry.head_groups)
            self._open += 1
            space.submit_match(
                queue,
                (self, row),
                keys,
                groups=[group.number],
                rectangle=rectangle,
                pin_ms=self._pin_ms,
                deadline_ms=MATCH_MS,
            )

    def let_go(self) -> None:
        """The answer is of no use any more, or what it offered has been loaded."""
        pins, self._pins = self._pins, None
        for pin in pins or ():
            self._release(pin)

    def _pinned(self, pin: int) -> None:
        if self._pins is None:
            self._release(pin)
        else:
            self._pins.append(pin)

    def load_ms(self, chunk: int) -> float:
        """Until the chunk is here in all groups, as its nodes expect; 0: they say nothing."""
        return max((row[chunk] / 1000 for row in self._load_us.values() if chunk < len(row)), default=0.0)

    def fetch_ahead(self, space: Namespace, queue: Queue, geometry: Geometry, keys: bytes, chunks: int) -> int:
        """Asks for what lies on SSD of the first `chunks` to be in memory when it is loaded; how many chunks, in all groups."""
        size, asked = len(keys) // self.chunks, 0
        for row, group in enumerate(geometry.groups):
            cold = [at for at in self._cold.pop(row, []) if at < chunks]
            if cold:
                asked += len(cold)
                space.submit_prefetch(
                    queue,
                    (self, FETCHED),
                    b"".join(keys[at * size : (at + 1) * size] for at in cold),
                    groups=[group.number],
                    rectangle=(0, group.layers, 0, geometry.head_groups),
                    deadline_ms=FETCH_MS,
                    priority=Priority.BATCH,  # a load that somebody waits for goes first
                )
        return asked

    def completed(self, what: Any, result: Any) -> None:
        """Of one of its operations: a row of the answer, a wait that ended and what comes after it, or a prefetch."""
        if what == FETCHED:
            return
        self._open -= 1
        if callable(what):
            if self._open == 0 and self._pins is not None:
                what()
            return
        if result is not None and result.pin:
            self._pinned(result.pin)
        presence = result.presence if result is not None else b""
        self._load_us[what] = result.estimates_us if result is not None else []
        self.present[what] = [each < 64 for each in presence] or [False] * self.chunks
        self._cold[what] = [at for at, each in enumerate(presence) if each == Presence.SSD]
        self.unreached |= not presence or any(each in (Presence.UNREACHABLE, Presence.TIMED_OUT) for each in presence)
        if self._open == 0:
            self.done_s = time.monotonic()


def drain(queue: Queue, wait_ms: float, answered: Callable[[Lookup], None]) -> None:
    """Hands completions to their lookups, and says which have their answer; waits for the first one for so long."""
    while completions := queue.poll(64, wait_ms):
        wait_ms = 0
        for completion in completions:
            lookup, what = completion.token
            lookup.completed(what, completion.result)
            if lookup.done and what != FETCHED:
                answered(lookup)
