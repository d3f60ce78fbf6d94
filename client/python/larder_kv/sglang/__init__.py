"""SGLang's HiCache storage: pages of its host pool are kept in a Larder cluster and come back from it.

python -m sglang.launch_server --enable-hierarchical-cache --hicache-mem-layout page_first --page-size 64
    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{"backend_name": "larder",
    "module_path": "larder_kv.sglang", "class_name": "LarderStorage", "interface_v1": 1, "endpoints": "127.0.0.1:7400"}'
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """SGLang asks for the class by name; without SGLang the rest can be imported too."""
    if name == "LarderStorage":
        from larder_kv.sglang.storage import LarderStorage

        return LarderStorage
    raise AttributeError(name)
