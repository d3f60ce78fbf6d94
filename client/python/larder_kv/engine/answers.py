"""Whether nodes answered in time, as results tell."""

from __future__ import annotations

import larder_kv
from larder_kv import Outcome, Presence, PutState


def matched(result: larder_kv.MatchResult) -> bool:
    """A node that is dead costs no time, so only when none answers is that a failure."""
    presence = result.presence
    return Presence.TIMED_OUT not in presence and set(presence) != {Presence.UNREACHABLE}


def got(result: larder_kv.GetResult) -> bool:
    if Outcome.OUT_OF_TIME in result.outcomes:
        return False
    misses = {reason for outcome, reason in zip(result.outcomes, result.reasons) if outcome != Outcome.HIT}
    return Presence.TIMED_OUT not in misses and (result.hits > 0 or misses != {Presence.UNREACHABLE})


def put(result: larder_kv.PutResult) -> bool:
    return PutState.EXPIRED not in result.states
