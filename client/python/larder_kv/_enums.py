"""Names for the numbers in results. Values of ``larder.h``."""

from __future__ import annotations

import enum


class Outcome(enum.IntEnum):
    """Of a block that was asked for."""

    HIT = 0
    MISS = 1
    BAD = 2
    REFUSED = 3
    OUT_OF_TIME = 4


class Presence(enum.IntEnum):
    """Where a block is (below 64), or why not."""

    RAM = 0
    SSD = 1
    WRITING = 64
    NEVER_STORED = 65
    EVICTED = 66
    EXPIRED = 67
    CLEARED = 68
    REMOVED = 69
    NOT_ADMITTED = 70
    CORRUPT = 71
    QUARANTINED = 72
    UNCOVERED = 73
    TIMED_OUT = 74
    UNREACHABLE = 75
    BUSY = 76
    REFUSED = 77
    DISK_BEHIND = 78
    EVICTED_SSD = 79
    DISK_LOST = 80
    BYPASSED = 81
    OVER_QUOTA = 82
    PLACE_LOST = 83

    @property
    def there(self) -> bool:
        """The block can be had."""
        return self < 64


class PutState(enum.IntEnum):
    """Of a block that was put; the first three mean that it is there."""

    STORED = 1
    EXISTS = 2
    DIFFERS = 3
    FULL = 4
    BUSY = 5
    EXPIRED = 6
    CORRUPT = 7
    CLEARED = 8
    INVALID = 9
    OVER_QUOTA = 10

    @property
    def there(self) -> bool:
        """The block can be had."""
        return self <= 3


class Priority(enum.IntEnum):
    """Interactive traffic is served before batch traffic."""

    INTERACTIVE = 0
    BATCH = 1


class Retention(enum.IntEnum):
    """What an engine knows of a chain's future. It fades as blocks age, ends with their next use, and pins nothing."""

    NONE = 0
    ENDED = 1  # the turn ended: the next comes when a person has read and written
    CONTINUES = 2  # a tool call follows: asked for again in seconds
    NEVER = 3  # never again: gives way before all others
