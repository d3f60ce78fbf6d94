"""The engine's connection to Larder, with a namespace for each adapter and each reload of the weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import larder_kv
from larder_kv.engine import link
from larder_kv.vllm.options import Options


class Link(link.Link):
    """May be used from any thread."""

    def __init__(self, options: Options, identity: Mapping[str, str | int], log: logging.Logger) -> None:
        self._identity = dict(identity)
        super().__init__(options, "vllm", log)

    def space(self, key: tuple[str, int]) -> larder_kv.Namespace | None:
        """The namespace of a LoRA digest and a weights epoch; None without a connection."""
        return self.namespace(key, lambda: self._described(*key))

    def _described(self, lora: str, epoch: int) -> dict[str, str | int]:
        fields = dict(self._identity)
        if lora:
            fields["lora"] = lora
        if epoch:
            fields["weights_private"] = f"{epoch:016x}"
        return fields

    def opened(self, epoch: int) -> list[larder_kv.Namespace]:
        """Namespaces of an epoch that this process has used."""
        return [space for key, space in self._spaces.items() if isinstance(key, tuple) and key[1] == epoch]
