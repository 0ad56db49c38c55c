"""Answers of the plain case, written from templates: the bytes vLLM would have written at a fraction of their cost.

vLLM builds and validates pydantic objects for every answer and every chunk of a stream. One output, no logprobs, no
tools, no echo: then only the text changes, and the rest is a template. Everything else goes to vLLM's own code.
"""

from typing import Any

from cluster.gateway.answers import ChatAnswers, CompletionAnswers
from cluster.gateway.chat_stream import ChatStreams
from cluster.gateway.completion_stream import CompletionStreams


def install(state: Any) -> None:
    """Put the writers in front of vLLM's chat and completion handlers."""
    ChatStreams(state.openai_serving_chat)
    ChatAnswers(state.openai_serving_chat)
    CompletionStreams(state.openai_serving_completion)
    CompletionAnswers(state.openai_serving_completion)
