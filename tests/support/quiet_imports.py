"""Imports vLLM's API server without its warnings: they are others' and warnings are errors here."""

import os
import warnings

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import cluster.gateway.app  # noqa: F401
