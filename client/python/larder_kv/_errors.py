"""Why a call did nothing at all. A miss is no such reason: it is an outcome of a block."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """Numbers of ``larder.h``."""

    INVALID = 1
    NOT_FOUND = 2
    BUSY = 3
    FULL = 4
    TIMED_OUT = 5
    UNAVAILABLE = 6
    DENIED = 7
    CORRUPT = 8
    UNSUPPORTED = 9
    CANCELLED = 10
    INTERNAL = 11
    FORKED = 64


class Error(Exception):
    """The base of all: ``code`` says what, the text says how to mend it."""

    code: Code

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = Code(code)


class InvalidError(Error, ValueError):
    """The arguments are wrong."""


class BusyError(Error):
    """A bound was reached: again later."""


class DeadlineError(Error, TimeoutError):
    """The deadline passed."""


class UnavailableError(Error, ConnectionError):
    """No node can be reached."""


class DeniedError(Error, PermissionError):
    """Wrong token."""


class ForkedError(Error):
    """The client was opened by the parent process."""


_CLASSES: dict[int, type[Error]] = {
    Code.INVALID: InvalidError,
    Code.BUSY: BusyError,
    Code.TIMED_OUT: DeadlineError,
    Code.UNAVAILABLE: UnavailableError,
    Code.DENIED: DeniedError,
    Code.FORKED: ForkedError,
}


def error_of(code: int, text: str) -> Error:
    """Called by the extension."""
    return _CLASSES.get(code, Error)(code, text)
