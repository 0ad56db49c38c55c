"""KV-aware routing with real vLLM: prefill on node a, decode on node b, a store on each."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.gateway.route_header import HEADER, parse
from tests.support.prompts import prompt_of
from tests.support.serving import Served, TestCluster, config_of

pytestmark = [pytest.mark.ray, pytest.mark.engine, pytest.mark.timeout(600)]

BLOCK = 32
ANSWER = 40
NEW = 50


@pytest.fixture(scope="module")
def served(cluster: TestCluster, demo_model: str) -> Iterator[Served]:
    config = config_of(
        "laptop.yaml",
        model={"path": demo_model},
        prefill={"label_selector": {"node": "a"}},
        decode={"label_selector": {"node": "b"}},
        store={"bytes": "512MiB"},
        gateway={"explain_header": True},
    )
    with cluster.serve(config) as running:
        yield running


class Conversation:
    """Turns of which each continues the one before, in token ids."""

    def __init__(self, served: Served, first: list[int]) -> None:
        self._served = served
        self.context = first

    def begin(self) -> None:
        """The first turn, wherever it is computed."""
        self.context += ask(self._served, self.context)[0]

    def turn(self, new: list[int]) -> tuple[int, int]:
        """Ask with `new` tokens appended; tokens of the prompt that were computed, and that had to be."""
        prompt = self.context + new
        held = len(self.context) - 1  # the last token of an answer was never fed to an engine
        before = self._computed_tokens()
        self.context = prompt + ask(self._served, prompt)[0]
        return self._computed_tokens() - before, len(prompt) - held // BLOCK * BLOCK

    def _computed_tokens(self) -> int:
        """By whichever replica computed the prompts."""
        return int(self._served.metric("baton_prompt_source_tokens_total", 'source="computed"'))


def ask(served: Served, prompt: list[int]) -> tuple[list[int], dict[str, str]]:
    """A greedy answer, and what the gateway tells of it."""
    body: dict[str, Any] = {
        "model": served.model,
        "prompt": prompt,
        "max_tokens": ANSWER,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    with served.client() as client:
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["token_ids"], parse(answer.headers[HEADER.decode()])


def test_each_turn_of_a_conversation_computes_only_its_new_tokens(served: Served, demo_model: str) -> None:
    conversation = Conversation(served, prompt_of(demo_model, 700, number=1))
    conversation.begin()
    for number in (2, 3):
        computed, needed = conversation.turn(prompt_of(demo_model, NEW, number))
        assert computed == needed


def test_a_new_turn_finds_its_blocks_in_the_store_when_the_engine_was_lost(served: Served, demo_model: str) -> None:
    conversation = Conversation(served, prompt_of(demo_model, 500, number=10))
    conversation.begin()
    replace_decode(served)
    computed, needed = conversation.turn(prompt_of(demo_model, NEW, number=11))
    assert computed - needed in (0, BLOCK)  # the last block's name may not have reached the store before the kill


def replace_decode(served: Served) -> None:
    """Kill the decode replica and return when another answers."""
    from ray import serve

    from cluster.app import APPLICATION

    handle = serve.get_deployment_handle("DecodeWorker", APPLICATION)
    if not handle.is_initialized:
        handle._init(_run_router_in_separate_loop=True)
    os.kill(handle.status.remote().result(timeout_s=30)["pid"], signal.SIGKILL)
    for wanted in (503, 200):
        await_health(served, wanted)


def await_health(served: Served, status: int, deadline_s: float = 120.0) -> None:
    """Return when `/health` answers with `status`."""
    end = time.monotonic() + deadline_s
    with served.client(5.0) as client:
        while client.get("/health").status_code != status:
            assert time.monotonic() < end, f"no {status}"
            time.sleep(0.2)


def test_predictions_stand_beside_what_came(served: Served, demo_model: str) -> None:
    _, told = ask(served, prompt_of(demo_model, 300, number=20))
    assert float(told["predicted_ttft_s"]) > 0
    assert float(told["ttft_s"]) > 0
    assert served.metric("baton_ttft_prediction_error_ratio_count") > 0
