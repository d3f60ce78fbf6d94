"""Which weights a model's name stands for: LMCache knows the name only, and a name says nothing about what is in files."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Mapping

from larder_kv.engine import weights


LOOK_S = 1.0  # how often an answer looks at the files
RETRY_S = 60.0  # weights that could not be found


@dataclasses.dataclass
class _Model:
    digest: str = ""  # empty: not known yet, or nobody can know it
    place: str = ""
    stamp: str = ""
    look_at: float = 0.0  # when the files, or weights that were not there, are looked for again
    finding: bool = False
    exchanged: bool = False


class Models:
    """May be used from any thread. Digests take seconds, so they are made in the background: until then there are no hits.

    Whether an engine that goes by a name runs what lies in its files now or what lay there before, nobody can tell once they
    have changed. So nothing is kept of that model from then on."""

    def __init__(self, places: Mapping[str, str], log: logging.Logger) -> None:
        self._places = places
        self._log = log
        self._lock = threading.Lock()
        self._models: dict[str, _Model] = {}

    def digest(self, name: str) -> str:
        """Empty when it is not known."""
        now = time.monotonic()
        with self._lock:
            model = self._models.setdefault(name, _Model())
            if model.exchanged or model.finding or now < model.look_at:
                return model.digest
            if model.digest:
                model.look_at = now + LOOK_S
                self._look(name, model)
            else:
                model.look_at = now + RETRY_S  # should no thread be left for it
                threading.Thread(target=self._find, args=(name, model), name="larder-weights", daemon=True).start()
                model.finding = True
            return model.digest

    def _look(self, name: str, model: _Model) -> None:
        try:
            changed = weights.stamp(model.place) != model.stamp
        except OSError:
            changed = True
        if changed:
            model.digest, model.exchanged = "", True
            self._log.warning(
                'Larder: the weights of "%s" were exchanged, and nobody can tell which an engine runs: nothing is kept of it '
                "any more until LMCache is started anew, after its engines",
                name,
            )

    def _find(self, name: str, model: _Model) -> None:
        place = found = stamp = ""
        try:
            place = weights.locate(self._places.get(name, name))
            stamp = weights.stamp(place)
            found = weights.digest(place)
        except Exception as error:  # whatever it is: without a digest nothing is kept
            self._log.warning(
                'Larder: nothing is kept of model "%s": %s; or say in adapter_params where they are: '
                '"weights": {"%s": "/path/of/its/weights"}',
                name,
                error,
                name,
            )
        with self._lock:
            model.place, model.stamp, model.digest = place, stamp, found
            model.look_at = time.monotonic() + (LOOK_S if found else RETRY_S)
            model.finding = False
