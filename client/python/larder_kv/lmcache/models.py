"""Which weights a model's name stands for: LMCache knows the name only, and a name says nothing about what is in files."""

# mypy: ignore-errors
from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from larder_kv.engine import weights
from larder_kv.engine.model import UnservedError


class Models:
    """May be used from any thread. Digests take seconds, so they are made in the background: until then there are no hits."""

    def __init__(self, places: Mapping[str, str], log: logging.Logger) -> None:
        self._places = places
        self._log = log
        self._lock = threading.Lock()
        self._digests: dict[str, str] = {}  # empty: not known yet, or nobody can know it

    def digest(self, name: str) -> str:
        """Empty when it is not known."""
        with self._lock:
            known = self._digests.get(name)
            if known is None:
                known = self._digests[name] = ""
                threading.Thread(target=self._find, args=(name,), name="larder-weights", daemon=True).start()
            return known

    def _find(self, name: str) -> None:
        try:
            found = weights.digest(weights.locate(self._places.get(name, name)))
        except (UnservedError, OSError) as error:
            self._log.warning(
                'Larder: nothing is kept of model "%s": %s; or say in adapter_params where they are: '
                '"weights": {"%s": "/path/of/its/weights"}',
                name,
                error,
                name,
            )
            return
        with self._lock:
            self._digests[name] = found
