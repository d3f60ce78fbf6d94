"""An adapter's own section in its engine's configuration, as a dataclass says what may stand in it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Which cluster, and whose cache: what every adapter's section has. Endpoints left out come from LARDER_ENDPOINTS or the
    config file."""

    endpoints: str | None = None
    config_file: str | None = None
    tenant: str | None = None
    cache_prefix: str = ""  # keeps caches apart that would be interchangeable
WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number above 0",
    "tuple[int, ...]": "a list of whole numbers",
    "dict[str, str]": "a mapping of texts to texts",
}


def _checked(where: str, name: str, kind: str, value: Any) -> Any:
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind.startswith("str"):
        if name == "endpoints" and isinstance(value, (list, tuple)):
            return ",".join(map(str, value))
        if isinstance(value, str):
            return value
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if kind == "float" and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    if kind.startswith("tuple[int") and isinstance(value, (list, tuple)):
        if all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in value):
            return tuple(value)
    if kind.startswith("dict[str") and isinstance(value, Mapping):
        if all(isinstance(each, str) for each in (*value, *value.values())):
            return dict(value)
    raise ValueError(f'{where}: "{name}" is {value!r}; it must be {WANTED.get(kind, "a text")}')


def parse(
    kind: type[Settings], given: Mapping[str, Any], where: str, others: Collection[str] = ()
) -> tuple[Settings, list[str]]:
    """The settings and what to warn about. `others` are the engine's own names there. ValueError: a value makes no sense."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    warnings = []
    known = {}
    for name, value in given.items():
        if name in fields:
            known[name] = _checked(where, name, fields[name], value)
            continue
        if name in others:
            continue
        near = difflib.get_close_matches(name, fields, 1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(fields)}"
        warnings.append(f'{where}: "{name}" is not known and ignored; {hint}')
    return kind(**known), warnings
