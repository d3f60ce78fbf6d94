"""LMCache's second level: objects of its host memory are kept in a Larder cluster and come back from it.

lmcache server ... --l2-adapter '{"type": "plugin", "module_path": "larder_kv.lmcache", "class_name": "LarderL2Adapter",
    "adapter_params": {"endpoints": "127.0.0.1:7400"}}'
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """LMCache asks for the class by name; without LMCache the rest can be imported too."""
    if name == "LarderL2Adapter":
        from larder_kv.lmcache.adapter import LarderL2Adapter

        return LarderL2Adapter
    raise AttributeError(name)
