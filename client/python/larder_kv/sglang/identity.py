"""What makes this engine's pages interchangeable with another's."""

# mypy: ignore-errors
from __future__ import annotations

import hashlib
import pathlib
from typing import Any

from larder_kv.engine import weights
from larder_kv.engine.model import UnservedError, config_digest

INTERFACE = "sglang-hicache-1"  # raised when the meaning of bytes or hashes changes without any other field changing


def _digest(model: str, revision: str | None, load_format: Any, seed: Any) -> str:
    if str(load_format) == "dummy":
        return f"dummy-{seed}"
    try:
        return weights.digest(weights.locate(model, revision))
    except OSError as error:
        raise UnservedError(f"{error}: the cache of a model without known weights can't be shared") from error


def _adapter(given: Any) -> tuple[str, str]:
    """Name and place, in each way that SGLang writes them."""
    if isinstance(given, str):
        name, separator, path = given.partition("=")
        return name, path if separator else name
    if isinstance(given, dict):
        return given["lora_name"], given["lora_path"]
    return given.lora_name, given.lora_path


def _adapters_digest(lora_paths: Any) -> str:
    """Adapters that are loaded from the start have ids of their name and path, and the ids are in the hashes: so what is in
    the files must be here. Those that are loaded later have random ids."""
    if not lora_paths:
        return ""
    given = lora_paths.items() if isinstance(lora_paths, dict) else map(_adapter, lora_paths)
    total = hashlib.sha256(b"larder adapters 1\n")
    try:
        for line in sorted(f"{name} {weights.adapter_digest(weights.locate(path))}\n" for name, path in given):
            total.update(line.encode())
    except OSError as error:
        raise UnservedError(f"{error}: the cache of an adapter without known weights can't be shared") from error
    return total.hexdigest()


def of_engine(cache_prefix: str) -> dict[str, str | int]:
    """Whose model computes what is stored, from the configuration that SGLang published in this process. UnservedError: no
    hits, and why."""
    from sglang.srt.runtime_context import get_device, get_lora, get_model, get_spec, process_model_config

    try:
        args, draft, model = get_model(), get_spec(), process_model_config()
    except ValueError as error:
        raise UnservedError(f"SGLang has not said in this process which model it runs: {error}") from error
    seed = get_device().random_seed
    fields: dict[str, str | int] = {
        "kind": "opaque",
        "model": (getattr(model.hf_config, "architectures", None) or ["unknown"])[0],
        "weights_digest": _digest(args.model_path, args.revision, args.load_format, seed),
        "config_digest": config_digest(model.hf_config),
        "weights_quant": str(model.quantization or ""),
        "compute_dtype": str(model.dtype).removeprefix("torch."),
        "kv_dtype": str(args.kv_cache_dtype),
        "lora": _adapters_digest(get_lora().lora_paths),
        "hash": "sha256",
        "engine_layout": INTERFACE,
        "cache_prefix": cache_prefix,
    }
    if args.quantization_param_path:
        fields["kv_scales"] = weights.digest_files([pathlib.Path(args.quantization_param_path)])
    if draft.speculative_algorithm:
        fields["draft_method"] = str(draft.speculative_algorithm)
        if place := draft.speculative_draft_model_path:
            revision = draft.speculative_draft_model_revision
            fields["draft_weights_digest"] = _digest(place, revision, args.load_format, seed)
    return fields


def of_rank(config: Any, replicated: bool) -> dict[str, str | int]:
    """Which part of each page this rank has. All ranks of a replicated pool have the same part, and one writes it."""
    fields: dict[str, str | int] = {
        "pp": f"{config.pp_rank}/{config.pp_size}",
        "cp": f"{config.attn_cp_rank}/{config.attn_cp_size}",
        "dcp": f"{config.dcp_rank}/{config.dcp_size}",
    }
    if not replicated:
        fields["tp"] = f"{config.tp_rank}/{config.tp_size}"
    return fields


def weight_version() -> str:
    """What SGLang calls the weights that it runs at the moment."""
    from sglang.srt.runtime_context import get_serving

    return str(get_serving().weight_version)
