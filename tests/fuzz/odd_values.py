"""Values that break things: of no type in particular, and of parameters that have rules of their own."""

from typing import Any

HUGE = 10**30


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    None, True, False, 0, -0.0, 1, -1, 2, 0.5, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"),
    2**31, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**63, 2**63 - 1, -(2**63) - 1, 2**64, HUGE, -HUGE, 10**400,
    "", " ", "a", "0", "-1", "nan", "true", "null", "hi " * 2000, "a" * 100_000, "\x00", "\ud800", "\udfff\ud800",
    "\u202e\u0000", "é" * 50, "😀" * 20, "{{ 1 / 0 }}", "{% for x in range(10**9) %}{% endfor %}", "../../etc/passwd",
    "<|im_start|>", "data:image/png;base64,AAAA", "file:///etc/passwd", "(((((a+)+)+)+)+)+$", "[", "{", "%s%n", "\n\r",
    [], [None], [[]], [{}], [0], [-1], [2**40], ["a"], ["\ud800"], [1.5], [True], [""] * 10, [[1], "a"], [HUGE],
    {}, {"": None}, {"a": {}}, {"type": None}, {"type": "object"}, {"type": "text", "text": None}, {"role": "user"},
    {"type": "function"}, {"$ref": "#"}, {"5": 1}, {"-1": 1}, {"a": [1]}, {"role": "\x00", "content": []},
)  # fmt: skip

_SCHEMAS: tuple[Any, ...] = (
    {}, True, [], "x", {"type": "nonsense"}, {"type": []}, {"$ref": "#"}, {"$ref": "#/definitions/none"},
    {"$ref": "http://127.0.0.1:1/"}, {"type": "string", "pattern": "(["}, {"type": "string", "pattern": "(?<=a)b\\1"},
    {"enum": []}, {"enum": [HUGE]}, {"type": "integer", "minimum": 2**70}, {"type": "integer", "minimum": 5,
    "maximum": 1},
    {"type": "array", "minItems": 10**9}, {"type": "array", "items": {"$ref": "#"}}, {"anyOf": []}, {"const": "\ud800"},
    {"type": "object", "properties": 5}, {"type": "object", "properties": {"\ud800": {}}}, {"type": "object",
    "required": 1},
    {"type": "string", "maxLength": -1}, {"type": "string", "minLength": 10**12}, {"allOf": [{"$ref": "#"}]},
    {"type": "number", "multipleOf": 0}, {"type": "string", "format": "date-time"}, {"patternProperties": {"([": {}}},
    '{"type": "object"', "null", {"type": "object", "properties": {str(i): {"type": "string"} for i in range(500)}},
)  # fmt: skip

_CONSTRAINTS: tuple[Any, ...] = (
    *({"json": schema} for schema in _SCHEMAS),
    *(
        {"regex": regex}
        for regex in ("", "([", "a{1000000}", "(a{1000}){1000}", "\\", "(?=a)", "[\ud800]", "\\p{L}+", "(a|a)*" * 20, 5)
    ),
    *(
        {"grammar": grammar}
        for grammar in ("", "root ::= (", "root ::= root", "root ::= a", "x", 'root ::= "\ud800"', "root ::= " * 50, [])
    ),
    *({"choice": choice} for choice in ([], [""], ["a"] * 2000, "a", [1], ["\ud800"], [None])),
    {"json_object": True}, {"json_object": False}, {"json_object": "x"}, {"json": {}, "regex": "a"}, {}, "x",
    {"structural_tag": "x"}, {"structural_tag": "{}"}, {"structural_tag": '{"type": "structural_tag", "format": 5}'},
    {"structural_tag": '{"structures": [], "triggers": []}'}, {"regex": "a", "backend": "none"}, {"regex": "a", "x": 1},
    {"regex": "a", "whitespace_pattern": "(["}, {"json": {"type": "object"}, "disable_any_whitespace": 5},
)  # fmt: skip

_FORMATS: tuple[Any, ...] = (
    {"type": "json_object"}, {"type": "text"}, {"type": "grammar"}, {"type": "json_schema"}, {"type": "structural_tag"},
    {"type": "json_schema", "json_schema": None}, {"type": "json_schema", "json_schema": {"name": "n"}},
    {"type": "structural_tag", "structures": [], "triggers": []}, {"type": "structural_tag", "format": {"type": "x"}},
    {"type": "structural_tag", "structures": [{"begin": "a", "schema": {}, "end": "b"}], "triggers": ["b"]},
    *({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}} for schema in _SCHEMAS),
)  # fmt: skip

_TOOLS: tuple[Any, ...] = (
    [], [{}], ["f"], "f", {}, [{"type": "function"}], [{"type": "function", "function": {}}],
    [{"type": "function", "function": {"name": "", "parameters": None}}], [{"type": "web_search"}], [{"type": "mcp"}],
    [{"type": "custom", "custom": {"name": "c"}}], [{"name": "f"}], [{"name": "f", "input_schema": None}],
    [{"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:1"}], [{"type": "code_interpreter",
    "container": 5}],
    *([{"type": "function", "function": {"name": "f", "parameters": schema}}] for schema in _SCHEMAS),
    *([{"type": "function", "name": "f", "parameters": schema, "strict": True}] for schema in _SCHEMAS),
    *([{"name": "f", "input_schema": schema}] for schema in _SCHEMAS),
)  # fmt: skip

_CHOICES: tuple[Any, ...] = (
    "auto", "none", "required", "any", "f", "", {}, {"type": "function"}, {"type": "function",
    "function": {"name": "g"}},
    {"type": "function", "name": "g"}, {"type": "tool", "name": "g"}, {"type": "any"}, {"type": "allowed_tools"},
    {"type": "allowed_tools", "mode": "auto", "tools": [{}]}, {"type": "function", "function": {"name": "\ud800"}},
)  # fmt: skip

_MESSAGES: tuple[Any, ...] = (
    [], [{}], [None], "hi", {}, [{"role": "user"}], [{"role": "user", "content": None}], [{"role": "assistant"}],
    [{"role": "tool", "content": "x"}], [{"role": "system", "content": ""}], [{"role": "", "content": "x"}],
    [{"role": "user", "content": []}], [{"role": "user", "content": [{}]}], [{"role": "user", "content": [None]}],
    [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "image_url"}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/"}}]}],
    [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x", "format": "y"}}]}],
    [{"role": "user", "content": [{"type": "file", "file": {"file_data": "x"}}]}],
    [{"role": "user", "content": [{"type": "refusal", "refusal": 5}]}], [{"role": "user", "content": "hi", "name": 5}],
    [{"role": "assistant", "tool_calls": "x"}], [{"role": "assistant",
    "tool_calls": [{"function": {"arguments": "{"}}]}],
    [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "[1]"}}]}],
    [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{"}}]}],
    [{"role": "assistant", "content": None, "reasoning": 5}], [{"role": "developer",
    "content": [{"type": "thinking"}]}],
    [{"type": "function_call_output", "call_id": "x", "output": "y"}], [{"type": "reasoning", "summary": []}],
    [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}], [{"type": "item_reference", "id": "x"}],
    [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": None}]}], [{"role": "user",
    "content": "a" * 9000}],
    [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "x", "data": "y"}}]}],
    [{"role": "user", "content": [{"type": "document", "source": {}}]}], [[{"role": "user", "content": "hi"}], []],
    [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": "y"}]}],
)  # fmt: skip

_TEMPLATES = (
    "",
    "{{ 1 / 0 }}",
    "{% for",
    "{{ messages }}",
    "{{ ''.__class__.__mro__ }}",
    "{% raise %}",
    "{{ x.y.z }}",
    5,
)

PARAMETERS: dict[str, tuple[Any, ...]] = {
    "n": (0, -1, 2, 63, 64, 65, 16_385, HUGE),
    "best_of": (0, 1, 5, HUGE),
    "max_tokens": (0, -1, 1, 255, 256, 10**6, HUGE),
    "max_completion_tokens": (0, -1, 1, HUGE),
    "max_output_tokens": (0, -1, 1, HUGE),
    "min_tokens": (-1, 1, 300, HUGE),
    "temperature": (-1, 0, 1e-9, 1e308, 1e-320),
    "top_p": (0, -1, 1.0000001, 1e-320),
    "top_k": (0, -1, -2, 10**9, HUGE),
    "min_p": (-1, 2, 1),
    "seed": (-1, 2**31, 2**63, -(2**63), HUGE),
    "logprobs": (True, 0, 1, 20, 21, -1, -2, HUGE),
    "top_logprobs": (0, 1, 20, 21, -1, -2, HUGE),
    "prompt_logprobs": (0, 1, -1, -2, 20, 10**6),
    "logprob_token_ids": ([], [5], [-1], [10**9], [5] * 1000),
    "presence_penalty": (-3, 3, 2, 1e308),
    "frequency_penalty": (-3, 3, -2),
    "repetition_penalty": (0, -1, 1e-320, 1e308),
    "repetition_detection": ({}, {"max_pattern_size": -1}, {"max_pattern_size": HUGE, "min_count": 0}),
    "length_penalty": (0, -1e308),
    "logit_bias": ({"-1": 1}, {"999999": 1}, {"5": 1e308}, {"5": "x"}, {"5.5": 1}, {"٣": 1}, {"5": -101}),
    "stop": ("", [""], ["a"] * 1000, [None], [[]], "\ud800", ["a" * 50_000], "\n"),
    "stop_sequences": ([""], ["a"] * 1000, "x", ["\ud800"]),
    "stop_token_ids": ([], [-1], [10**9], [2**70], ["a"], [5] * 5000),
    "allowed_token_ids": ([], [-1], [10**9], [5]),
    "bad_words": ([], [""], ["a"] * 1000, ["\ud800"], [5], [" "], ["\x00"]),
    "ignore_eos": (True,),
    "echo": (True,),
    "stream": (True, False, "yes", 5),
    "stream_options": ({}, {"include_usage": 5}, {"continuous_usage_stats": True, "include_usage": True}, [], "x"),
    "stream_interval": (0, -1, 5, HUGE),
    "priority": (-1, -(10**9), 10**9, 2**63, HUGE, -HUGE),
    "cache_salt": ("", "a" * 100_000, "\x00", "\ud800", "é", 5),
    "request_id": ("", "a" * 100_000, "\x00", "\ud800", "x/y z\n"),
    "session_id": ("", "a" * 100_000, "\ud800"),
    "user": ("\ud800", 5, "a" * 1000),
    "truncate_prompt_tokens": (0, -1, -2, 1, 10**9, HUGE),
    "truncation_side": ("left", "right", "middle"),
    "truncation": ("auto", "disabled", "x"),
    "prompt": ("", [], [[]], [-1], [2**32], [2**70], [None], ["a", 5], "hi " * 3000, [5] * 300, ["a"] * 70,
    {"id": "x"}),
    "prompt_embeds": ("AAAA", "", ["AAAA"], "é", [None]),
    "input": ("", [], [{}], [None], "hi " * 3000, 5, *_MESSAGES),
    "suffix": ("x", ""),
    "messages": _MESSAGES,
    "previous_input_messages": _MESSAGES,
    "system": ("", [], [{}], [{"type": "text", "text": "x"}], [{"type": "image"}], 5),
    "instructions": ("", "\ud800", 5, "a" * 9000),
    "tools": _TOOLS,
    "tool_choice": _CHOICES,
    "parallel_tool_calls": (False, "x"),
    "response_format": _FORMATS,
    "structured_outputs": _CONSTRAINTS,
    "text": ({}, {"format": {}}, *({"format": {"type": "json_schema", "name": "n", "schema": s}} for s in _SCHEMAS)),
    "output_config": ({}, {"format": {}}, *({"format": {"type": "json_schema", "schema": s}} for s in _SCHEMAS)),
    "thinking": ({"type": "enabled", "budget_tokens": -1}, {"type": "disabled"}, {}, {"type": "adaptive"}),
    "thinking_token_budget": (-1, 0, 5, HUGE),
    "reasoning": ({}, {"effort": "x"}, {"effort": "high"}, {"effort": None}),
    "reasoning_effort": ("none", "high", "x", ""),
    "include": (["x"], ["message.output_text.logprobs"], []),
    "include_reasoning": (False,),
    "background": (True,),
    "store": (True, False),
    "previous_response_id": ("resp_x", "", "x", "resp_\ud800"),
    "metadata": ({"a": 5}, {"a" * 1000: "b"}, {"user_id": 5}),
    "max_tool_calls": (0, -1, HUGE),
    "chat_template": _TEMPLATES,
    "chat_template_kwargs": ({"messages": 5}, {"tools": 5}, {"chat_template": "x"}, {"tokenize": True}, {"\ud800": 1}),
    "documents": ([], [{}], [{"text": 5}], "x"),
    "add_generation_prompt": (False,),
    "continue_final_message": (True,),
    "add_special_tokens": (False,),
    "skip_special_tokens": (False,),
    "spaces_between_special_tokens": (False,),
    "include_stop_str_in_output": (True,),
    "return_token_ids": (True,),
    "return_prompt_text": (True,),
    "return_token_offsets": (True,),
    "return_tokens_as_token_ids": (True,),
    "return_token_strs": (True,),
    "return_mm_kwargs": (True,),
    "routed_experts_prompt_start": (-1, 0, 5),
    "use_beam_search": (True,),
    "watermarking": (True, {}, {"seed": 1}, "x"),
    "mm_payload": ({}, "x", []),
    "mm_processor_kwargs": ({"a": 1}, {}),
    "media_io_kwargs": ({"image": 5}, {"image": {"a": 1}}),
    "kv_transfer_params": ({}, {"do_remote_prefill": True}, {"a": HUGE}, "x"),
    "ec_transfer_params": ({}, {"a": 1}, "x"),
    "vllm_xargs": ({}, {"a": HUGE}, {"a": "\ud800"}, {"kv_transfer_params": "x"}, {"a": [1, "b"]}, {"a": float("nan")}),
    "tokens": ([], [-1], [2**31], [2**70], [None], [5] * 100_000, ["5"]),
    "model": ("", "other", "\ud800", 5, None, "a" * 10_000),
    "prompt_cache_key": ("\ud800", "a" * 1000),
    "enable_response_messages": (True,),
    "service_tier": ("x", "flex"),
    "top_n": (1,),
}  # fmt: skip
"""Values that are nearly right, or right alone and not with the others."""
