"""The allow-list."""

import pytest

from cluster.gateway.routes import Shape, find


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", Shape.CHAT),
        ("/v1/completions", Shape.COMPLETION),
        ("/v1/responses", Shape.RESPONSE),
        ("/v1/responses/resp_1", Shape.RESPONSE),
        ("/v1/responses/resp_1/cancel", Shape.RESPONSE),
        ("/v1/messages", Shape.MESSAGE),
        ("/v1/models", Shape.OTHER),
        ("/tokenize", Shape.OTHER),
        ("/health", Shape.OTHER),
    ],
)
def test_inference_is_open(path, shape):
    route = find(path)
    assert route is not None
    assert route.shape is shape


@pytest.mark.parametrize(
    "path",
    [
        "/scale_elastic_ep",
        "/is_scaling_elastic_ep",
        "/v1/load_lora_adapter",
        "/start_profile",
        "/sleep",
        "/collective_rpc",
        "/update_weights",
        "/invocations",
        "/load",
        "/server_info",
        "/kv_event_sources",
        "/v1/embeddings",
        "/v1/responses/compact",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/metrics/anything",
        "",
    ],
)
def test_everything_else_is_closed(path):
    assert find(path) is None
