"""LarderConnector as engines import it, with the recorder: for workers that are processes of their own."""

import recorder
from larder_kv.vllm.connector import LarderConnector

recorder.install()

__all__ = ["LarderConnector"]
