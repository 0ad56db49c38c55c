"""The header that tells where an answer was made."""

import pytest

from cluster.coordinator.placement import Placement
from cluster.gateway.asgi_types import Message, Receive, Scope, Send
from cluster.gateway.route_header import HEADER, RouteHeader, claim_placement, describe, parse
from routing.router import Decision, Fetch, Predicted
from tests.gateway.conftest import open_client
from tests.gateway.requests import COMPLETIONS, completion

PREDICTED = Predicted(0.1, 0.2, 0.05, 0.05, 0.01, computed_tokens=100, cached_tokens=32)


def test_the_header_sets_predicted_beside_actual() -> None:
    told = parse(describe(Placement(Decision("d1", "p1", "", PREDICTED), ttft_s=0.44, cached_tokens=96)))
    assert (told["decode"], told["prefill"], told["decode_cached_tokens"]) == ("d1", "p1", "96")
    assert float(told["predicted_ttft_s"]) == pytest.approx(0.4)
    assert float(told["ttft_s"]) == 0.44


def test_the_header_says_what_comes_from_another_node() -> None:
    told = parse(describe(Placement(Decision("d1", None, "", PREDICTED, fetch=Fetch("node 7", 16, 96, 1.0)))))
    assert (told["fetched_from"], told["fetched_tokens"]) == ("node 7", "80")


def test_a_router_that_predicts_nothing_is_described_as_far_as_it_goes() -> None:
    assert parse(describe(Placement(Decision("d1", None, "")))) == {"decode": "d1"}


async def test_the_header_goes_out_with_the_start_of_an_answer_that_was_routed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        placement = claim_placement()
        assert placement is not None
        if scope["path"] == "/routed":
            placement.routed(Decision("d1", None, ""))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    for path in ("/routed", "/health"):
        await RouteHeader(app, None)({"path": path}, receive, send)
    assert [message["headers"] for message in sent] == [[(HEADER, b"decode=d1")], []]
    assert claim_placement() is None


async def test_of_several_prompts_in_one_request_the_first_is_told_of(plain_app, backend) -> None:
    async with open_client(RouteHeader(plain_app, None)) as client:
        got = await client.post(COMPLETIONS, json=completion(prompt=["one", "two", "three"]))
    assert got.status_code == 200, got.text
    assert [request.placement is not None for request in backend.requests] == [True, False, False]
