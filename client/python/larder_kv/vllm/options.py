"""kv_connector_extra_config of ``--kv-transfer-config``."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Options:
    """What may be set. Endpoints left out come from LARDER_ENDPOINTS or the config file."""

    endpoints: str | None = None
    config_file: str | None = None
    tenant: str | None = None
    cache_prefix: str = ""  # keeps caches apart that would be interchangeable
    load_async: bool = True
    lookup_async: bool = True
    save_decode_cache: bool = False  # also what was generated; else prompts only
    chunk_tokens: int = 0  # tokens of a Larder block; 0: see geometry.py
    deadline_ms: float = 5000  # what has not come by then is computed


def _checked(name: str, kind: str, value: Any) -> Any:
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
    wanted = {"bool": "true or false", "int": "a whole number", "float": "a number above 0"}.get(kind, "a text")
    raise ValueError(f'kv_connector_extra_config: "{name}" is {value!r}; it must be {wanted}')


def parse(extra: Mapping[str, Any]) -> tuple[Options, list[str]]:
    """The options and what to warn about. ValueError: a value makes no sense."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(Options)}
    warnings = []
    known = {}
    for name, value in extra.items():
        if name in fields:
            known[name] = _checked(name, fields[name], value)
            continue
        near = difflib.get_close_matches(name, fields, 1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(fields)}"
        warnings.append(f'kv_connector_extra_config: "{name}" is not known and ignored; {hint}')
    return Options(**known), warnings
