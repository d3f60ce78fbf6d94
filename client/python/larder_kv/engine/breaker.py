"""Leaves a cluster alone that does not answer in time."""

from __future__ import annotations


class Breaker:
    """Opens after some failures in a row, tries once when its pause is over, doubles the pause when that fails.

    The client leaves a dead node alone by itself; this is for nodes that are up and too slow. Time is an argument."""

    def __init__(self, failures_max: int = 3, pause_s: float = 1.0, pause_max_s: float = 30.0) -> None:
        self._failures_max = failures_max
        self._pause_s = pause_s
        self._pause_max_s = pause_max_s
        self._failures = 0
        self._pause_now_s = 0.0  # of the current opening
        self._closed_at = 0.0  # when a try is allowed again

    @property
    def is_open(self) -> bool:
        return self._pause_now_s > 0

    def allows(self, now_s: float) -> bool:
        """Whether to ask. While open, true once a pause: the caller must then report how it went."""
        if not self.is_open:
            return True
        if now_s < self._closed_at:
            return False
        self._closed_at = now_s + self._pause_now_s
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._pause_now_s = 0.0

    def failed(self, now_s: float) -> None:
        self._failures += 1
        if self._failures < self._failures_max:
            return
        self._pause_now_s = min(max(self._pause_s, 2 * self._pause_now_s), self._pause_max_s)
        self._closed_at = now_s + self._pause_now_s
