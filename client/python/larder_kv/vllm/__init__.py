"""vLLM's KV connector: prefixes are kept in a Larder cluster and come back from it.

vllm serve MODEL --kv-transfer-config '{"kv_connector": "LarderConnector", "kv_connector_module_path": "larder_kv.vllm",
    "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
    "kv_connector_extra_config": {"endpoints": "127.0.0.1:7400"}}'
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """vLLM asks for the class by name; without vLLM the rest can be imported too."""
    if name == "LarderConnector":
        from larder_kv.vllm.connector import LarderConnector

        return LarderConnector
    raise AttributeError(name)
