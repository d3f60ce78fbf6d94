"""What makes this engine's cache interchangeable with another's."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

from larder_kv.engine import weights
from larder_kv.engine.model import UnservedError, config_digest
from larder_kv.vllm.geometry import Geometry, plan
from larder_kv.vllm.groups import groups_of, total_kv_heads

INTERFACE = "vllm-v1-lbhnc"  # raised when the meaning of bytes or hashes changes without any other field changing


def weights_digest(model_config: Any, load_format: str) -> str:
    if str(load_format) == "dummy":
        return f"dummy-{model_config.seed}"
    try:
        location = getattr(model_config, "model_weights", None) or model_config.model
        return weights.digest(weights.locate(location, model_config.revision))
    except OSError as error:
        raise UnservedError(f"{error}: the cache of a model without known weights can't be shared") from error


def packing() -> str:
    """How the attention kernels of this machine pack K and V inside a block: it may depend on the CPU."""
    from vllm.platforms import current_platform

    return "cpu" if current_platform.is_cpu() else str(current_platform.device_type)


def _cpu_class(vllm_config: Any, block_tokens: int, head_dim: int) -> str:
    from vllm.v1.attention.backends import cpu_attn

    dtype = vllm_config.model_config.dtype
    return cpu_attn._get_attn_isa(dtype, block_tokens, head_dim, vllm_config.cache_config.cache_dtype)


def describe(vllm_config: Any, kv_cache_config: Any, options: Any) -> tuple[Geometry, dict[str, str | int]]:
    """Geometry and identity fields (weights epoch and LoRA are added for each namespace). UnservedError: no hits, and why."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    layout = kv_cache_config.kv_cache_layout
    if layout not in (None, "LBHNC"):
        raise UnservedError(f"KV cache layout {layout} is not served yet: set VLLM_KV_CACHE_LAYOUT=LBHNC")
    if getattr(cache, "calculate_kv_scales", False):
        raise UnservedError("calculate_kv_scales makes scales of each process's own; use scales from the checkpoint")
    groups = groups_of(vllm_config, kv_cache_config)
    hash_tokens = kv_cache_config.hash_block_size or groups[0].block_tokens
    geometry = plan(groups, hash_tokens, options.chunk_tokens)
    dtype = str(model.dtype).removeprefix("torch.")
    head_dim = model.get_head_size()
    isa = _cpu_class(vllm_config, groups[0].block_tokens, head_dim) if packing() == "cpu" else ""
    described = ";".join(
        f"{group.number}:{group.layers}x{group.heads}x{group.cell_bytes}/{group.block_tokens}w{group.window_tokens}"
        for group in geometry.groups
    )
    fields: dict[str, str | int] = {
        "kind": "kv",
        "model": (getattr(model.hf_config, "architectures", None) or ["unknown"])[0],
        "weights_digest": weights_digest(model, vllm_config.load_config.load_format),
        "config_digest": config_digest(model.hf_config),
        "weights_quant": str(model.quantization or ""),
        "compute_dtype": dtype,
        "kv_dtype": dtype if cache.cache_dtype == "auto" else str(cache.cache_dtype),
        "attention": "mla" if model.use_mla else "gqa",
        "kv_heads": total_kv_heads(vllm_config),
        "head_groups": geometry.head_groups,
        "head_dim": head_dim,
        "layers": geometry.layers,
        "block_tokens": geometry.chunk_tokens,
        "engine_block_tokens": groups[0].block_tokens,
        "groups": described,
        "layout": f"lbhnc-{packing()}{'-' + isa if isa else ''}",
        "hash": str(cache.prefix_caching_hash_algo),
        "engine_layout": INTERFACE,
        "cache_prefix": options.cache_prefix,
    }
    draft = getattr(vllm_config, "speculative_config", None)
    if draft is not None and getattr(draft, "draft_model_config", None) is not None:
        fields["draft_method"] = str(draft.method)
        fields["draft_config_digest"] = config_digest(draft.draft_model_config.hf_config)
        fields["draft_weights_digest"] = weights_digest(draft.draft_model_config, vllm_config.load_config.load_format)
    return geometry, {name: value for name, value in fields.items() if value != ""}


def lora_digest(lora_request: Any) -> str:
    """Empty without an adapter. The engine's hash has its name and path; neither says what is in the files."""
    return "" if lora_request is None else weights.adapter_digest(lora_request.lora_path)
