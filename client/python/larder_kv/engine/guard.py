"""Between an engine and Larder: whatever goes wrong is a miss and at most a line, never an exception."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import larder_kv
from larder_kv.engine.breaker import Breaker

Result = TypeVar("Result")


class Guard:
    """May be used from any thread. `off` says why nothing is asked any more."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._breaker = Breaker()
        self.off = ""

    def turn_off(self, why: str, error: BaseException | None = None) -> None:
        with self._lock:
            if self.off:
                return
            self.off = why
        self._log.warning("Larder: off, the engine serves without: %s", why, exc_info=error)

    def allows(self) -> bool:
        """Whether to ask now; who does must say how it went."""
        if self.off:
            return False
        with self._lock:
            return self._breaker.allows(time.monotonic())

    def heard(self, what: str, answered: bool) -> None:
        """How a question went: not answered means too late or not at all, a miss is an answer."""
        with self._lock:
            was = self._breaker.is_open
            if answered:
                self._breaker.succeeded()
            else:
                self._breaker.failed(time.monotonic())
            opened, closed = self._breaker.is_open and not was, was and not self._breaker.is_open
        if opened:
            self._log.warning("Larder: %s was not answered in time, again; leaving it alone for a while", what)
        elif closed:
            self._log.info("Larder: it answers again")

    def ask(self, what: str, default: Result, call: Callable[[], tuple[Result, bool]]) -> Result:
        """The call's result and whether it was answered; the default when it may not be made or fails."""
        if not self.allows():
            return default
        try:
            result, answered = call()
        except larder_kv.Error as error:
            self._log.debug("Larder: %s: %s", what, error)
            result, answered = default, isinstance(error, larder_kv.InvalidError)  # that says nothing about nodes
        except Exception as error:  # a fault of ours, or an interface that changed: it will not get better
            self.turn_off(f"{what}: {type(error).__name__}: {error}", error)
            return default
        self.heard(what, answered)
        return result
