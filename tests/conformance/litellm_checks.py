"""litellm, through its OpenAI provider."""

from typing import Any

import litellm

from tests.conformance.checks import (
    QUESTION,
    TIMEOUT_S,
    Checks,
    Server,
    a_word_of,
    require,
    require_stopped,
    require_usage,
    require_verdict,
    require_weather,
)
from tests.conformance.openai_checks import SCHEMA, TOOL_CHOICE, TOOLS

litellm.suppress_debug_info = True
litellm.telemetry = False


def _ask(server: Server, question: str = QUESTION, **more: Any) -> Any:
    request = {"max_tokens": 48, "temperature": 0, **more}
    return litellm.completion(
        model=f"openai/{server.model}",
        api_base=f"{server.base_url}/v1",
        api_key=server.api_key,
        messages=[{"role": "user", "content": question}],
        timeout=TIMEOUT_S,
        num_retries=0,
        **request,
    )


def chat(server: Server) -> None:
    answer = _ask(server)
    require(bool(answer.choices[0].message.content), "no content")
    require_usage(answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)


def streaming(server: Server) -> None:
    chunks = list(_ask(server, stream=True, stream_options={"include_usage": True}))
    require(bool("".join(c.choices[0].delta.content or "" for c in chunks if c.choices)), "no content")
    usages = [c.usage for c in chunks if getattr(c, "usage", None)]
    require(bool(usages), "no usage")
    require_usage(usages[-1].prompt_tokens, usages[-1].completion_tokens, usages[-1].total_tokens)


def tools(server: Server) -> None:
    answer = _ask(server, "What is the weather in Paris?", tools=TOOLS, tool_choice=TOOL_CHOICE)
    calls = answer.choices[0].message.tool_calls
    require(bool(calls), f"no tool call: {answer.choices[0].message}")
    require_weather(calls[0].function.arguments)


def tools_streamed(server: Server) -> None:
    chunks = list(_ask(server, "What is the weather in Paris?", tools=TOOLS, tool_choice=TOOL_CHOICE, stream=True))
    whole = litellm.stream_chunk_builder(chunks)
    calls = whole.choices[0].message.tool_calls
    require(bool(calls), f"no tool call: {whole.choices[0].message}")
    require_weather(calls[0].function.arguments)


def json_schema(server: Server) -> None:
    require_verdict(_ask(server, "Is Paris a capital?", response_format=SCHEMA).choices[0].message.content)


def logprobs(server: Server) -> None:
    answer = _ask(server, logprobs=True, top_logprobs=3, max_tokens=8)
    positions = answer.choices[0].logprobs.content
    require(len(positions) == answer.usage.completion_tokens, f"{len(positions)} positions")
    require(all(len(p.top_logprobs) == 3 for p in positions), "a position has no three candidates")


def three(server: Server) -> None:
    answer = _ask(server, n=3, temperature=1.0, seed=1, max_tokens=12)
    require([c.index for c in answer.choices] == [0, 1, 2], f"indices {[c.index for c in answer.choices]}")


def stop(server: Server) -> None:
    whole = _ask(server).choices[0].message.content
    word = a_word_of(whole)
    stopped = _ask(server, stop=[word]).choices[0]
    require(stopped.finish_reason == "stop", f"finish_reason {stopped.finish_reason}")
    require_stopped(whole, stopped.message.content or "", word)


CHECKS: Checks = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "tools, streamed": tools_streamed,
    "JSON schema": json_schema,
    "logprobs": logprobs,
    "n=3": three,
    "stop": stop,
}
