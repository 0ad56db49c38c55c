"""openai-python. A check whose `ask` is another client's, with answers of the same shape, is a check of that client."""

from collections.abc import Callable
from typing import Any

from openai import OpenAI

from tests.conformance.checks import (
    QUESTION,
    TIMEOUT_S,
    VERDICT_SCHEMA,
    WEATHER,
    WEATHER_ABOUT,
    WEATHER_SCHEMA,
    Checks,
    Server,
    a_word_of,
    require,
    require_stopped,
    require_usage,
    require_verdict,
    require_weather,
)

Ask = Callable[..., Any]

# vLLM constrains a call's arguments to the schema only where the tool says `strict`.
FUNCTION = {"name": WEATHER, "description": WEATHER_ABOUT, "parameters": WEATHER_SCHEMA, "strict": True}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
TOOL_CHOICE: Any = {"type": "function", "function": {"name": WEATHER}}
SCHEMA: Any = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": VERDICT_SCHEMA, "strict": True}}


def _ask(server: Server, question: str = QUESTION, **more: Any) -> Any:
    client = OpenAI(base_url=f"{server.base_url}/v1", api_key=server.api_key, timeout=TIMEOUT_S, max_retries=0)
    request = {"max_tokens": 48, "temperature": 0, **more}
    return client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": question}], **request
    )


def chat(server: Server, ask: Ask = _ask) -> None:
    answer = ask(server)
    require(bool(answer.choices[0].message.content), "no content")
    require(answer.choices[0].finish_reason in ("stop", "length"), f"finish_reason {answer.choices[0].finish_reason}")
    require_usage(answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)


def streaming(server: Server) -> None:
    chunks = list(_ask(server, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    require(bool(text), "no content")
    require(len(reasons) == 1, f"finish reasons: {reasons}")
    usage = chunks[-1].usage
    require(usage is not None and not chunks[-1].choices, "the last chunk has no usage")
    require_usage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)


def tools(server: Server, ask: Ask = _ask) -> None:
    answer = ask(server, "What is the weather in Paris?", tools=TOOLS, tool_choice=TOOL_CHOICE)
    calls = answer.choices[0].message.tool_calls
    require(bool(calls), f"no tool call: {answer.choices[0].message}")
    require(calls[0].function.name == WEATHER, f"called {calls[0].function.name}")
    require_weather(calls[0].function.arguments)


def tools_streamed(server: Server) -> None:
    chunks = _ask(server, "What is the weather in Paris?", tools=TOOLS, tool_choice=TOOL_CHOICE, stream=True)
    parts = [part for c in chunks if c.choices for part in c.choices[0].delta.tool_calls or ()]
    names = [part.function.name for part in parts if part.function.name]
    require(names == [WEATHER], f"names: {names}")
    require_weather("".join(part.function.arguments or "" for part in parts))


def json_schema(server: Server, ask: Ask = _ask) -> None:
    answer = ask(server, "Is Paris a capital?", response_format=SCHEMA)
    require_verdict(answer.choices[0].message.content)


def logprobs(server: Server, ask: Ask = _ask) -> None:
    answer = ask(server, logprobs=True, top_logprobs=3, max_tokens=8)
    positions = answer.choices[0].logprobs.content
    require(len(positions) == answer.usage.completion_tokens, f"{len(positions)} positions")
    require(all(p.logprob <= 0 and len(p.top_logprobs) == 3 for p in positions), "a position has no three candidates")
    require("".join(p.token for p in positions).strip() != "", "tokens have no text")


def three(server: Server, ask: Ask = _ask) -> None:
    answer = ask(server, n=3, temperature=1.0, seed=1, max_tokens=12)
    require([c.index for c in answer.choices] == [0, 1, 2], f"indices {[c.index for c in answer.choices]}")
    require(all(c.message.content for c in answer.choices), "an empty choice")


def stop(server: Server, ask: Ask = _ask) -> None:
    whole = ask(server).choices[0].message.content
    word = a_word_of(whole)
    stopped = ask(server, stop=[word]).choices[0]
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
