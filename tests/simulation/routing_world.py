"""A small cluster in virtual time for the router: prompts with real keys, and one line to run it."""

import random
from collections.abc import Callable, Sequence

from cluster.planning import minds
from cluster.planning.gateway import Gateway, Mind
from cluster.planning.outcome import Outcome
from cluster.planning.settings import ClusterSettings, EngineSettings, NetworkSettings, aggregated
from cluster.planning.simulation import Simulation
from cluster.planning.step_time import DynamoPolynomial
from cluster.planning.trace import Trace, TraceRequest
from routing.block_keys import extend, root
from routing.profile import Profile

BLOCK = 64
ENGINE = EngineSettings(step_time=DynamoPolynomial(16_384 * BLOCK), block_size_tokens=BLOCK, kv_bytes_per_token=0)
PROFILE = Profile(
    prefill_step_s=16.5e-3,
    prefill_token_s=18e-6,
    prefill_attention_s=0.0,
    chunk_tokens=8_192,
    decode_step_s=5.74e-3,
    decode_request_s=0.0,
    decode_context_token_s=54.01e-3 / (16_384 * BLOCK),
    max_running=256,
    kv_bytes_per_token=0,
    host_bytes_per_s=50e9,
    host_latency_s=0.0,
    remote_bytes_per_s=25e9,
    remote_latency_s=0.0,
)


def ours() -> Mind:
    """A mind of its own for one gateway."""
    return minds.kv_aware(PROFILE, itl_target_s=0.025)


def prompt(arrival_s: float, shared: int, own: int, output_tokens: int, seed: int) -> TraceRequest:
    """`shared` tokens that all prompts begin with, then `own` that only those with this `seed` have."""
    tokens = [*random.Random(0).choices(range(50_000), k=shared), *random.Random(seed).choices(range(50_000), k=own)]
    return TraceRequest(arrival_s, len(tokens), output_tokens, extend(root(None, None), tokens, BLOCK))


def gateways(make: Callable[[], Mind], count: int = 1, seed: int = 7) -> list[Gateway]:
    """Gateways that know nothing of each other."""
    return [Gateway(number, make(), random.Random(seed + number)) for number in range(count)]


def cluster(workers: int, network: NetworkSettings | None = None) -> ClusterSettings:
    """Workers that do everything."""
    return aggregated(workers, ENGINE, network)


def run(requests: Sequence[TraceRequest], workers: int, minds_of: Sequence[Gateway]) -> Outcome:
    """All of it; checks afterwards that nothing is held."""
    simulation = Simulation(cluster(workers), minds_of, Trace(requests, BLOCK))
    outcome = simulation.run()
    simulation.check()
    return outcome


def closed_loop(requests: Sequence[TraceRequest], concurrency: int, workers: int, mind: Gateway) -> Outcome:
    """`concurrency` clients, each sending its next request when its last is answered."""
    return closed_loop_in(cluster(workers), requests, concurrency, mind)


def closed_loop_in(
    settings: ClusterSettings, requests: Sequence[TraceRequest], concurrency: int, mind: Gateway
) -> Outcome:
    """The same in a cluster that is given."""
    left = list(reversed(requests))

    def next_one(_: int = 0) -> None:
        if left:
            simulation.offer(left.pop())

    simulation = Simulation(settings, [mind], Trace([], BLOCK), on_finished=next_one)
    for _ in range(concurrency):
        simulation.at(0.0, next_one)
    outcome = simulation.run()
    simulation.check()
    return outcome


def spread(outcome: Outcome) -> float:
    """The most requests of any worker over the least."""
    given = [worker.requests for worker in outcome.workers]
    return max(given) / min(given) if min(given) else float("inf")
