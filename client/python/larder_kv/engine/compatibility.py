"""Whether an engine that is installed has the interface that its adapter was written for."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from larder_kv.engine.model import UnservedError


def lacking_calls(base: Any, calls: Mapping[str, Sequence[str]]) -> str:
    """What is not as it is called: `calls` names the arguments of each. Empty: all is there."""
    for name, arguments in calls.items():
        call = getattr(base, name, None)
        if call is None:
            return f"{name} is gone"
        found = [each for each in inspect.signature(call).parameters if each != "self"]
        if found != list(arguments):
            return f"{name} takes {found}"
    return ""


def lacking_fields(kind: Any, wanted: Collection[str]) -> str:
    missing = set(wanted) - {field.name for field in dataclasses.fields(kind)}
    return f"{kind.__name__} has no {', '.join(sorted(missing))}" if missing else ""


def check(engine: str, version: str, tried: Sequence[str], lacking: Callable[[], str], log: logging.Logger) -> None:
    """UnservedError when the interface is not the one that is known: off is better than wrong."""
    if version.split("+")[0] in tried:
        return
    if what := lacking():
        raise UnservedError(f"{engine} {version} has another interface than {', '.join(tried)}: {what}")
    log.warning("Larder: %s %s was not tried (%s was); its interface looks the same", engine, version, ", ".join(tried))
