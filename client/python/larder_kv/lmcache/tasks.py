"""LMCache's tasks: each is a few operations of Larder, and is done when the last of them is."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Sequence
from typing import Any

from lmcache.v1.platform import create_event_notifier


class Kind(enum.Enum):
    STORE = "a store"
    LOOKUP = "a lookup"
    LOAD = "a load"


@dataclasses.dataclass
class Task:
    kind: Kind
    number: int
    keys: Sequence[Any]
    good: list[bool]  # for each key: stored, found, loaded
    open: int = 1  # operations, and whoever still begins some
    sizes: Sequence[int] = ()  # of what is stored
    fresh: list[int] = dataclasses.field(default_factory=list)  # what was not there before

    @property
    def nbytes(self) -> int:
        return sum(self.sizes[index] for index in self.fresh)


class Tasks:
    """May be used from any thread. Done tasks wait here for LMCache, which asks for each once; it bounds how many it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._done: dict[Kind, dict[int, Task]] = {kind: {} for kind in Kind}
        self._events = {kind: create_event_notifier() for kind in Kind}

    def event_fd(self, kind: Kind) -> int:
        return self._events[kind].fileno()

    def begin(self, kind: Kind, keys: Sequence[Any], sizes: Sequence[int]) -> Task:
        with self._lock:
            number, self._next = self._next, self._next + 1
        return Task(kind, number, keys, [False] * len(keys), sizes=sizes)

    def opened(self, task: Task) -> None:
        with self._lock:
            task.open += 1

    def ended(self, task: Task) -> bool:
        """One operation of it; true for the last one."""
        with self._lock:
            task.open -= 1
            return task.open == 0

    def finish(self, task: Task) -> None:
        with self._lock:
            self._done[task.kind][task.number] = task
        self._events[task.kind].notify()

    def take(self, kind: Kind, number: int) -> Task | None:
        with self._lock:
            return self._done[kind].pop(number, None)

    def take_all(self, kind: Kind) -> list[Task]:
        with self._lock:
            taken, self._done[kind] = self._done[kind], {}
        return list(taken.values())

    def close(self) -> None:
        for event in self._events.values():
            event.close()
