"""The connection to Larder: opened in the background, so that an engine starts and serves without any node."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

import larder_kv

OPEN_MS = 1000.0
PAUSE_MAX_S = 15.0


class Connection(Protocol):
    """Settings that every adapter has."""

    @property
    def endpoints(self) -> str | None: ...
    @property
    def config_file(self) -> str | None: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def deadline_ms(self) -> float: ...


class Link:
    """May be used from any thread. `off` says why it will never work; `client` is None until a node answered."""

    def __init__(self, options: Connection, name: str, log: logging.Logger) -> None:
        self._options = options
        self._name = name
        self._log = log
        self._spaces: dict[Hashable, larder_kv.Namespace] = {}
        self._closed = threading.Event()
        self._first_try = threading.Event()
        self.client: larder_kv.Client | None = None
        self.off = ""
        self._thread = threading.Thread(target=self._run, name="larder-open", daemon=True)
        self._thread.start()
        self._first_try.wait(OPEN_MS / 1000 + 0.5)

    @property
    def where(self) -> str:
        return self._options.endpoints or "LARDER_ENDPOINTS"

    def _run(self) -> None:
        pause_s, complained = 1.0, False
        while not self._closed.is_set():
            try:
                client = larder_kv.Client(
                    self._options.endpoints,
                    config_file=self._options.config_file,
                    name=self._name,
                    deadline_ms=self._options.deadline_ms,
                    open_deadline_ms=OPEN_MS,
                )
            except larder_kv.InvalidError as error:
                self.off = f"the client can't be opened: {error}"
                break
            except Exception as error:  # whatever it is, the engine serves on
                if not complained:
                    self._log.warning(
                        "Larder: no node answers at %s (%s). Serving without; start one or correct endpoints, it is tried again.",
                        self.where,
                        error,
                    )
                complained = True
                self._first_try.set()
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if complained:
                self._log.info("Larder: connected to %s", self.where)
            self.client = client
            break
        self._first_try.set()

    def namespace(
        self, key: Hashable, describe: Callable[[], Mapping[str, str | int]]
    ) -> larder_kv.Namespace | None:
        """The namespace that was opened under this key, else one of that identity; None without a connection."""
        found = self._spaces.get(key)
        if found is None and self.client is not None:
            found = self._spaces[key] = self.client.namespace(describe(), self._options.tenant)
        return found

    def close(self) -> None:
        self._closed.set()
        self._thread.join(OPEN_MS / 1000 + 1)
        self._spaces.clear()
        if self.client is not None:
            self.client.close()
            self.client = None
