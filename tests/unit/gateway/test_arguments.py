"""The configuration as arguments of vLLM's API server."""

import pytest

from cluster.gateway.arguments import server_arguments
from cluster.gateway.settings import GatewaySettings, InvalidArgument


def arguments(engine_args=None, **api_args):
    return server_arguments(
        GatewaySettings(
            model_path="/models/m",
            served_name="name",
            max_body_bytes=1,
            body_s=1.0,
            max_model_len=77,
            api_args=api_args,
            engine_args=engine_args or {},
        )
    )


def test_the_model_and_its_name_are_set():
    args = arguments()
    assert (args.model, args.served_model_name, args.max_model_len) == ("/models/m", ["name"], 77)
    assert args.enable_prompt_tokens_details


def test_values_of_every_kind_arrive():
    args = arguments(
        tool_call_parser="hermes",
        enable_auto_tool_choice=True,
        default_chat_template_kwargs={"enable_thinking": False},
        max_logprobs=5,
        chat_template=None,
    )
    assert args.tool_call_parser == "hermes"
    assert args.enable_auto_tool_choice is True
    assert args.default_chat_template_kwargs == {"enable_thinking": False}
    assert args.max_logprobs == 5


def test_engine_arguments_count_as_far_as_a_gateway_needs_them():
    args = arguments({"max_logprobs": 7, "gpu_memory_utilization": 0.1})
    assert args.max_logprobs == 7
    assert args.gpu_memory_utilization != 0.1


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tool_cal_parser", "hermes", "gateway.api_args.tool_cal_parser: vLLM's API server has no argument"),
        ("port", 1, "gateway.api_args.port: Baton sets this itself"),
        ("max_logprobs", "many", "max-logprobs"),
        ("enable_auto_tool_choice", True, "tool-call-parser"),
    ],
)
def test_a_wrong_entry_is_named(key, value, said):
    with pytest.raises(InvalidArgument, match=".*".join([said])):
        arguments(**{key: value})
