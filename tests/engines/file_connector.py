"""What Larder's loads are measured against: a connector that copies blocks from files in memory, unverified.

One file a prompt, mapped; the whole prefix or nothing; synchronous; one group. As little as can be done between the engine's
blocks and another place in the same machine's memory.
"""

import dataclasses
import mmap
import pathlib

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA


@dataclasses.dataclass
class Copies(KVConnectorMetadata):
    loads: list = dataclasses.field(default_factory=list)  # (file, block ids)
    stores: list = dataclasses.field(default_factory=list)


class FileConnector(KVConnectorBase_V1, SupportsHMA):
    requires_kv_delivery = False

    def __init__(self, vllm_config, role, kv_cache_config=None):
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._folder = pathlib.Path(vllm_config.kv_transfer_config.kv_connector_extra_config["folder"])
        self._block = vllm_config.cache_config.block_size
        self._loads, self._requests = [], {}

    def _file(self, request, blocks):
        return str(self._folder / request.block_hashes[blocks - 1].hex()) if blocks else None

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._requests[request.request_id] = request
        blocks = (request.num_tokens - 1) // self._block
        found = blocks and pathlib.Path(self._file(request, blocks)).exists()
        return (blocks * self._block if found else 0), False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens:
            count = num_external_tokens // self._block
            self._loads.append((self._file(request, count), blocks.get_block_ids()[0][:count]))

    def build_connector_meta(self, scheduler_output):
        meta, self._loads = Copies(loads=self._loads), []
        loaded = {file for file, _ in meta.loads}
        for name, count in scheduler_output.num_scheduled_tokens.items():
            request = self._requests[name]
            blocks = (request.num_prompt_tokens - 1) // self._block
            if (
                request.num_computed_tokens + count == request.num_prompt_tokens
                and self._file(request, blocks) not in loaded
            ):
                table = scheduler_output.kv_connector_block_state.get_block_ids(name)[0]
                meta.stores.append((self._file(request, blocks), table[:blocks]))
        return meta

    def request_finished_all_groups(self, request, block_ids):
        return False, None

    def register_kv_caches(self, kv_caches):
        self._layers = [cache.numpy().view(np.uint8).reshape(len(cache), -1) for cache in kv_caches.values()]

    def start_load_kv(self, forward_context, **kwargs):
        for file, blocks in self._get_connector_metadata().loads:
            with open(file, "rb") as opened:
                source = np.frombuffer(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
            source = source.reshape(len(self._layers), len(blocks), -1)
            for layer, content in zip(self._layers, source, strict=True):
                layer[blocks] = content

    def wait_for_save(self):
        for file, blocks in self._get_connector_metadata().stores:
            np.stack([layer[blocks] for layer in self._layers]).tofile(file)

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass
