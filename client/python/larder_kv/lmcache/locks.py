"""What lookups have pinned in nodes, until LMCache unlocks it key by key, or until it runs out there by itself."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Hashable, Sequence


@dataclasses.dataclass
class Pin:
    """One handle covers all hits of one lookup in one namespace."""

    handle: int
    until_s: float
    keys: set[Hashable]


class Locks:
    """May be used from any thread. Time is an argument. Forgets what has run out, so nothing piles up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pins: collections.deque[Pin] = collections.deque()  # the first to run out first
        self._of: dict[Hashable, collections.deque[Pin]] = {}

    def add(self, handle: int, keys: Sequence[Hashable], until_s: float, now_s: float) -> None:
        with self._lock:
            while self._pins and self._pins[0].until_s <= now_s:
                self._forget(self._pins.popleft())
            pin = Pin(handle, until_s, set(keys))
            self._pins.append(pin)
            for key in pin.keys:
                self._of.setdefault(key, collections.deque()).append(pin)

    def drop(self, keys: Sequence[Hashable]) -> list[int]:
        """One lock of each key; the handles that nobody needs any more."""
        done = []
        with self._lock:
            for key in keys:
                pins = self._of.get(key)
                if not pins:
                    continue  # it ran out
                pin = pins.popleft()
                if not pins:
                    del self._of[key]
                pin.keys.discard(key)
                if not pin.keys:
                    self._pins.remove(pin)
                    done.append(pin.handle)
        return done

    def _forget(self, pin: Pin) -> None:
        for key in pin.keys:
            pins = self._of[key]
            pins.remove(pin)
            if not pins:
                del self._of[key]

    def __len__(self) -> int:
        return len(self._pins)
