"""The engine's KV-cache groups in Larder's terms, and which of them can be served."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

from larder_kv.engine.model import UnservedError
from larder_kv.vllm.geometry import Group


def total_kv_heads(vllm_config: Any) -> int:
    return 1 if vllm_config.model_config.use_mla else vllm_config.model_config.get_total_num_kv_heads()


def _window(spec: Any) -> int:
    """0 for full attention."""
    kind = type(spec).__name__
    if kind in ("FullAttentionSpec", "MLAAttentionSpec"):
        return 0
    if kind == "SlidingWindowSpec":
        return spec.sliding_window + spec.extra_retained_tokens
    raise UnservedError(
        f"this model has a KV cache of kind {kind}, which can't be cut into blocks of a prefix: it runs without Larder"
    )


def _group(number: int, listed: Any, layers: int, heads: int) -> Group:
    spec = listed.kv_cache_spec
    window = _window(spec)
    if spec.num_head_slots not in (None, spec.num_kv_heads) or spec.tokens_per_state != 1:
        raise UnservedError(f"group {number} of the KV cache is packed in a way that is not served ({spec})")
    if spec.kv_quant_mode.name not in ("NONE", "FP8_PER_TENSOR"):
        raise UnservedError(
            f"KV cache quantisation {spec.kv_quant_mode.name} keeps its scales beside the blocks: not served yet"
        )
    return Group(number, layers, heads, spec.block_size, spec.state_content_size_bytes, window)


def groups_of(vllm_config: Any, kv_cache_config: Any) -> list[Group]:
    """All groups that take part in a hit, as the whole model has them. UnservedError when one can't be served."""
    parallel = vllm_config.parallel_config
    contexts = (parallel.decode_context_parallel_size, getattr(parallel, "prefill_context_parallel_size", 1))
    if contexts != (1, 1):
        raise UnservedError("context parallelism spreads the tokens of a block over ranks: not served yet")
    numbers = kv_cache_config.transfer_group_ids
    if tuple(numbers) != tuple(kv_cache_config.prefix_cacheable_group_ids):
        raise UnservedError(
            "part of this model's state can't be cached by prefix (recurrent state): it runs without Larder"
        )
    pipeline = parallel.pipeline_parallel_size
    if pipeline > 1 and (len(numbers) > 1 or getattr(vllm_config, "speculative_config", None) is not None):
        raise UnservedError("pipeline parallelism is served for models of one KV-cache group without a draft model")
    shards, total = parallel.tensor_parallel_size, total_kv_heads(vllm_config)
    made = []
    for number in numbers:
        listed = kv_cache_config.kv_cache_groups[number]
        layers = len(listed.layer_names)
        if pipeline > 1:
            layers = vllm_config.model_config.get_total_num_hidden_layers()
        if vllm_config.model_config.use_mla:
            heads = 1
        else:
            heads = listed.kv_cache_spec.num_kv_heads * shards if total >= shards else total
        made.append(_group(number, listed, layers, heads))
    if not made:
        raise UnservedError("this model has no KV cache that could be shared")
    return made
