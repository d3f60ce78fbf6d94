"""Where a group's blocks lie in this rank's memory, from the strides of the engine's tensors."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from larder_kv.engine.model import UnservedError
from larder_kv.vllm.geometry import Geometry, Group


@dataclasses.dataclass(frozen=True)
class Share:
    """What one rank holds of a group, in the grid of layers x head groups, half open."""

    layer_begin: int
    layer_end: int
    head_begin: int
    head_end: int
    writes: bool = True  # of ranks that hold the same, one writes

    @property
    def rectangle(self) -> tuple[int, int, int, int]:
        return self.layer_begin, self.layer_end, self.head_begin, self.head_end


def share_of(group: Group, geometry: Geometry, rank_layers: range, tp_rank: int, tp_size: int) -> Share:
    """Heads are dealt out to tensor-parallel ranks in order; where there are fewer heads than ranks, neighbours hold the same."""
    unit = group.heads // geometry.head_groups
    if group.heads >= tp_size:
        heads = group.heads // tp_size
        first, writes = tp_rank * heads, True
    else:
        copies = tp_size // group.heads
        heads, first, writes = 1, tp_rank // copies, tp_rank % copies == 0
    if first % unit or heads % unit:
        raise UnservedError(
            f"{group.heads} heads over {tp_size} ranks split Larder's units of {unit} heads: not served"
        )
    return Share(rank_layers.start, rank_layers.stop, first // unit, (first + heads) // unit, writes)


class GroupMemory:
    """Addresses of blocks. Keeps the tensors alive; nothing moves them while the engine lives."""

    def __init__(self, group: Group, geometry: Geometry, share: Share, tensors: list[Any], blocks: int) -> None:
        if len(tensors) != share.layer_end - share.layer_begin:
            raise UnservedError(
                f"group {group.number}: {len(tensors)} layers in memory, {share.layer_end - share.layer_begin} expected"
            )
        self._tensors = tensors
        self.share = share
        self.group = group
        self.blocks = blocks
        self.blocks_per_chunk = geometry.blocks_per_chunk(group)
        units = share.head_end - share.head_begin
        heads_per_unit = group.heads // geometry.head_groups
        starts = []  # [layers, units, kernel blocks], from the block's own start
        strides = set()
        pieces = set()
        for tensor in tensors:
            stride, piece, offsets = self._offsets(tensor, units, heads_per_unit)
            starts.append(tensor.data_ptr() + offsets)
            strides.add(stride)
            pieces.add(piece)
        if len(strides) != 1 or len(pieces) != 1:
            raise UnservedError(f"group {group.number}: its layers differ in shape")
        self._stride, self.extent_bytes = strides.pop(), pieces.pop()
        self._starts = np.array(starts, np.int64)
        self.chunk_bytes = self._starts.size * self.blocks_per_chunk * self.extent_bytes

    def _offsets(self, tensor: Any, units: int, heads_per_unit: int) -> tuple[int, int, np.ndarray]:
        """Bytes from block to block, bytes of an extent, and [units, kernel blocks] offsets inside a block."""
        if tensor.device.type != "cpu":
            raise UnservedError(
                f"the KV cache is in {tensor.device.type} memory: this connector serves host memory so far"
            )
        item = tensor.element_size()
        if tensor.dim() != 4 or tensor.shape[0] % self.blocks:
            raise UnservedError(f"a KV cache of shape {tuple(tensor.shape)} is not [blocks, heads, tokens, K and V]")
        split = tensor.shape[0] // self.blocks  # kernel blocks of an engine block
        block, head, token, cell = (each * item for each in tensor.stride())
        _, heads, tokens, width = tensor.shape
        dense = cell == item and token == width * item and (head == tokens * token or heads_per_unit == 1)
        if (
            not dense
            or heads != units * heads_per_unit
            or tokens * split != self.group.block_tokens
            or width * item != self.group.cell_bytes
        ):
            raise UnservedError(
                f"a KV cache of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not served"
            )
        offsets = np.arange(units)[:, None] * (heads_per_unit * head) + np.arange(split)[None, :] * block
        return block * split, heads_per_unit * tokens * token, offsets.astype(np.int64)

    def addresses(self, blocks: list[int], scratch: Any = None) -> np.ndarray:
        """[chunks, extents] in the order of Larder's bytes. A block of -1 goes to `scratch`, an allocator of bytes."""
        ids = np.asarray(blocks, np.int64).reshape(-1, self.blocks_per_chunk)
        if ids.size and (ids.max() >= self.blocks):
            raise ValueError(f"block {ids.max()} of {self.blocks}")
        # [chunks, layers, units, engine blocks, kernel blocks]
        at = self._starts[None, :, :, None, :] + (ids * self._stride)[:, None, None, :, None]
        nowhere = np.broadcast_to((ids < 0)[:, None, None, :, None], at.shape)
        count = int(nowhere.sum())
        if count:
            base = scratch(count * self.extent_bytes)
            at[nowhere] = base + np.arange(count, dtype=np.int64) * self.extent_bytes
        return np.ascontiguousarray(at.reshape(len(ids), -1)).astype(np.uint64)

    def spans(self) -> list[tuple[int, int]]:
        """(address, bytes) of the memory behind the tensors, each once."""
        found = {}
        for tensor in self._tensors:
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        return list(found.items())


def _layer_order(name: str) -> tuple[int, str]:
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return (numbers[0] if numbers else 0), name


def _rank_layers(vllm_config: Any, group: Group) -> range:
    if vllm_config.parallel_config.pipeline_parallel_size == 1:
        return range(group.layers)
    return range(*vllm_config.model_config.get_layers_start_end_indices(vllm_config.parallel_config))


def memories(
    vllm_config: Any, kv_cache_config: Any, geometry: Geometry, kv_caches: dict[str, Any]
) -> dict[int, GroupMemory]:
    """Of every group, by its number. UnservedError when the memory is not what the identity says."""
    from vllm.distributed import get_tensor_model_parallel_rank

    made = {}
    for group in geometry.groups:
        names = sorted(
            kv_caches.keys() & set(kv_cache_config.kv_cache_groups[group.number].layer_names), key=_layer_order
        )
        tensors: dict[int, Any] = {}
        for name in names:
            if not hasattr(kv_caches[name], "data_ptr"):
                raise UnservedError(
                    f"the KV cache of {name} is a {type(kv_caches[name]).__name__}, not a tensor: not served"
                )
            tensors.setdefault(kv_caches[name].data_ptr(), kv_caches[name])  # layers may share another's cache
        share = share_of(
            group,
            geometry,
            _rank_layers(vllm_config, group),
            get_tensor_model_parallel_rank(),
            vllm_config.parallel_config.tensor_parallel_size,
        )
        made[group.number] = GroupMemory(group, geometry, share, list(tensors.values()), kv_cache_config.num_blocks)
    return made
