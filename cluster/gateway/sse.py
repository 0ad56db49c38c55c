"""Streams of the plain case, written from templates: the bytes of vLLM's own generators at a fraction of their cost.

vLLM builds and validates pydantic objects for every chunk. One output, no logprobs, no tools, no echo: then only the
text changes from chunk to chunk, and the rest is a template made once. Everything else goes to vLLM's generators.
"""

from typing import Any

from cluster.gateway.chat_stream import ChatStreams
from cluster.gateway.completion_stream import CompletionStreams


def install(state: Any) -> None:
    """Put the writers in front of the generators of vLLM's chat and completion handlers."""
    ChatStreams(state.openai_serving_chat)
    CompletionStreams(state.openai_serving_completion)
