"""Moves pages between host pools and Larder. Every byte is verified by the client where it lands."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import larder_kv
from larder_kv import Extents, Outcome, Priority, PutState
from larder_kv.engine import answers
from larder_kv.engine.guard import Guard
from larder_kv.engine.link import Link
from larder_kv.sglang import identity
from larder_kv.sglang.pages import Pages, buffers, key_of


@dataclasses.dataclass(frozen=True)
class Pool:
    """A host pool that was registered."""

    pages: Pages
    fields: Mapping[str, str | int]
    writes: bool  # of ranks that hold the same, one writes


class PageCache:
    """May be used from any thread: SGLang prefetches, backs up and clears from three."""

    def __init__(self, link: Link, engine: Mapping[str, str | int], log: logging.Logger) -> None:
        self._link = link
        self._engine = engine
        self._log = log
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}
        self._memory: list[tuple[int, int]] = []  # not registered with the client yet
        self._registered: list[int] = []
        self._version = identity.weight_version()
        self._private = ""  # of this process, since its weights changed: nobody knows which they are
        self.guard = Guard(log)

    def add(self, name: str, pool: Any, pages: Pages, fields: Mapping[str, str | int], writes: bool) -> None:
        with self._lock:
            self._pools[name] = Pool(pages, {**fields, **pages.fields(), "pool": name}, writes)
            self._memory += [each for each in buffers(pool) if each[0] not in (*self._registered, *dict(self._memory))]

    def pool(self, name: str) -> Pool | None:
        return self._pools.get(name)

    def writes(self, pool: Pool) -> bool:
        """A namespace of this process alone has no other rank's pages."""
        return pool.writes or self._private != ""

    # --- namespaces

    def _described(self, pool: Pool) -> dict[str, str | int]:
        fields = {**self._engine, **pool.fields}
        if self._private:
            fields["weights_private"] = self._private
        return {name: value for name, value in fields.items() if value != ""}

    def _follow_weights(self) -> None:
        """Weights that were exchanged in a running engine are nobody else's."""
        version = identity.weight_version()
        if version == self._version:
            return
        self._version, self._private = version, secrets.token_hex(16)
        self._log.warning(
            "Larder: SGLang's weights are %s now; what was stored before is not used, and nothing is shared with others", version
        )

    def _space(self, name: str) -> larder_kv.Namespace | None:
        """None: no such pool, or no node has answered yet."""
        if self._link.off:
            self.guard.turn_off(self._link.off)
        pool = self._pools.get(name)
        if pool is None or self._link.client is None:
            return None
        with self._lock:
            self._follow_weights()
            self._register()
            return self._link.namespace((name, self._private), lambda: self._described(pool))

    def _register(self) -> None:
        """Transports that gain by it know the pools' memory; the others, and those that refuse it, need not."""
        while self._memory:
            address, nbytes = self._memory.pop()
            try:
                self._link.client.register(address, nbytes)
                self._registered.append(address)
            except larder_kv.Error as error:
                self._log.info("Larder: %d bytes of a host pool are not registered: %s", nbytes, error)

    def _ask(self, what: str, name: str, default: Any, call: Callable[[larder_kv.Namespace], tuple[Any, bool]]) -> Any:
        def with_space() -> tuple[Any, bool]:
            space = self._space(name)
            return (default, True) if space is None else call(space)

        return self.guard.ask(what, default, with_space)

    # --- pages

    def present(self, name: str, keys: Sequence[str]) -> list[bool]:
        """For each page whether it can be had."""

        def match(space: larder_kv.Namespace) -> tuple[list[bool], bool]:
            found = space.match([key_of(key) for key in keys])
            return [presence < 64 for presence in found.presence], answers.matched(found)

        return self._ask("a lookup", name, [False] * len(keys), match) if keys else []

    def get(self, name: str, keys: Sequence[str], into: Callable[[], Extents | None]) -> list[bool]:
        """For each page whether it has come and was verified."""

        def load(space: larder_kv.Namespace) -> tuple[list[bool], bool]:
            extents = into()
            if extents is None:
                return self._misfit(name, keys), True
            hashes = [key_of(key) for key in keys]
            got = space.get(hashes, extents, priority=Priority.INTERACTIVE)
            if got.leading:
                space.touch(hashes[: got.leading], usable=got.leading)
            return [outcome == Outcome.HIT for outcome in got.outcomes], answers.got(got)

        return self._ask("a load", name, [False] * len(keys), load) if keys else []

    def put(self, name: str, keys: Sequence[str], of: Callable[[], Extents | None], first_depth: int) -> list[bool]:
        """For each page whether it can be had now."""

        def store(space: larder_kv.Namespace) -> tuple[list[bool], bool]:
            extents = of()
            if extents is None:
                return self._misfit(name, keys), True
            hashes = [key_of(key) for key in keys]
            put = space.put(hashes, extents, first_depth=first_depth, priority=Priority.BATCH)
            return [PutState(state).there for state in put.states], answers.put(put)

        return self._ask("a store", name, [False] * len(keys), store) if keys else []

    def _misfit(self, name: str, keys: Sequence[str]) -> list[bool]:
        pages = self._pools[name].pages
        self._log.warning(
            "Larder: memory that was given for %d pages of pool %s is not %d slots a page; they are not moved",
            len(keys),
            name,
            pages.page_tokens,
        )
        return [False] * len(keys)

    def clear(self) -> bool:
        """Forgets these namespaces on every node; from then on this process has its own, as after weights were exchanged: an
        epoch that was counted up would meet that of another engine, or of this one's next life."""
        spaces = [space for space in (self._space(name) for name in list(self._pools)) if space is not None]
        with self._lock:
            self._private = secrets.token_hex(16)
        if not spaces:
            self._log.warning("Larder: no node can be reached, so nothing was cleared; a new namespace is used anyway")
            return False
        removed, whole = 0, True
        for space in spaces:
            try:
                removed += space.clear()
            except larder_kv.Error as error:
                whole = False
                self._log.warning("Larder: not all was cleared: %s", error)
        self._log.info("Larder: cleared %d blocks; from now on nothing is shared with other engines", removed)
        return whole

    def close(self) -> None:
        """Returns when no byte can land in the pools any more."""
        self.guard.off = self.guard.off or "closed"
        self._link.close()  # which lets go of the memory that was registered
