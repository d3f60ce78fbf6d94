"""The connection to Larder: opened in the background, so that an engine starts and serves without any node."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import larder_kv
from larder_kv.vllm.options import Options

OPEN_MS = 1000.0
PAUSE_MAX_S = 15.0


class Link:
    """May be used from any thread. `off` says why it will never work; `client` is None until a node answered."""

    def __init__(self, options: Options, identity: Mapping[str, str | int], log: logging.Logger) -> None:
        self._options = options
        self._identity = dict(identity)
        self._log = log
        self._spaces: dict[tuple[str, int], larder_kv.Namespace] = {}
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
                    name="vllm",
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

    def space(self, key: tuple[str, int]) -> larder_kv.Namespace | None:
        """The namespace of a LoRA digest and a weights epoch; None without a connection."""
        found = self._spaces.get(key)
        if found is None and self.client is not None:
            lora, epoch = key
            fields = dict(self._identity)
            if lora:
                fields["lora"] = lora
            if epoch:
                fields["weights_epoch"] = epoch
            found = self._spaces[key] = self.client.namespace(fields, self._options.tenant)
        return found

    def opened(self, epoch: int) -> list[larder_kv.Namespace]:
        """Namespaces of an epoch that this process has used."""
        return [space for (_, at), space in self._spaces.items() if at == epoch]

    def close(self) -> None:
        self._closed.set()
        self._thread.join(OPEN_MS / 1000 + 1)
        self._spaces.clear()
        if self.client is not None:
            self.client.close()
            self.client = None
