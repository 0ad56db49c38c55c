"""A whole coordinator on fake workers, and clients with habits: what one seed makes of them."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import Coordinator, CoordinatorSettings
from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.errors import (
    BatonError,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    NoReplicaReady,
    Overloaded,
    ReplicaLost,
)
from routing.fleet import Role
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from routing.router import Router
from tests.simulation.fake_workers import Behaviour, FakeWorkers, length, reference, text
from tests.simulation.recorder import Recorder

SETTINGS = CoordinatorSettings(
    max_attempts=3,
    max_moves=4,
    request_s=20.0,
    handoff_s=5.0,
    replica_s=8.0,
    admission=AdmissionSettings(max_outputs=8, max_wait_s=2.0, line=LineSettings(max_requests=3)),
)


def request(name: str = "r", prompt: int = 100, max_tokens: int = 4, outputs: int = 1) -> GenerationRequest:
    """A request whose prompt is `prompt` tokens long."""
    sampling = msgspec.msgpack.encode({"max_tokens": max_tokens, "n": outputs, "stop": ["x"], "logprobs": 2})
    return GenerationRequest(name, list(range(prompt)), sampling, max_tokens, outputs)


class World:
    """Built inside a running loop; `check` asserts that nothing is left of any request."""

    def __init__(
        self,
        behave: Callable[[str, Leg], Behaviour],
        prefills: int = 2,
        decodes: int = 2,
        settings: CoordinatorSettings = SETTINGS,
        seed: int = 0,
        router: Router | None = None,
    ) -> None:
        self.workers = FakeWorkers(behave)
        for i in range(prefills):
            self.workers.add(f"p{i}", Role.PREFILL)
        for i in range(decodes):
            self.workers.add(f"d{i}", Role.DECODE)
        self.ledger = Ledger()
        self.observer = Recorder()
        self.clock = asyncio.get_running_loop().time
        router = router or LeastWork(LeastWorkSettings(), self.ledger)
        self.coordinator = Coordinator(
            self.workers, router, self.ledger, self.clock, random.Random(seed), settings, self.observer
        )

    def check_idle(self) -> None:
        """Every lease is released, every stream closed, every count back at zero."""
        self.ledger.check()
        statistics = self.coordinator.statistics()
        assert self.ledger.statistics().open_leases == 0
        assert not self.workers.streams, f"open streams: {self.workers.streams}"
        assert not self.workers.pinned, f"nobody comes for {self.workers.pinned}"
        assert not statistics.in_flight
        assert statistics.admission.in_flight == 0
        assert not statistics.admission.waiting_requests
        self.coordinator.check()
        assert self.observer.in_flight == {"prefill": 0, "decode": 0}
        assert len(self.observer.endings) == self.observer.requests == sum(statistics.ended.values())
        assert statistics.attempts == len(self.observer.decisions)
        assert len(asyncio.all_tasks()) == 1, "a task is left"


@dataclass
class Client:
    """One request, what it got, and how it ended: "finished", "gone", or the error."""

    request: GenerationRequest
    tokens: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    cached_tokens: set[int] = field(default_factory=set)
    ending: str | BatonError | None = None

    async def run(self, coordinator: Coordinator, leave_after: int | None, pause_s: float) -> None:
        """Read the answer; go away after `leave_after` steps; dawdle for `pause_s` between two."""
        stream = coordinator.generate(self.request)
        steps = 0
        try:
            async for deltas in stream:
                for delta in deltas:
                    self.tokens.setdefault(delta.index, []).extend(delta.token_ids)
                    self.texts[delta.index] = self.texts.get(delta.index, "") + delta.text
                    self.cached_tokens |= {delta.num_cached_tokens} - {None}
                steps += 1
                if steps == leave_after:
                    self._end("gone")
                    return
                await asyncio.sleep(pause_s)
            self._end("finished")
        except BatonError as error:
            self._end(error)
        except asyncio.CancelledError:
            self._end("gone")
            raise
        finally:
            await stream.aclose()

    def check(self) -> None:
        """One final answer; every token is the reference's, and told once; a finished answer is whole."""
        assert self.ending is not None, "no final answer"
        assert self.cached_tokens <= {0}, "cached tokens of a later leg"
        for index, tokens in self.tokens.items():
            wanted = reference(self.request.token_ids, index, self.request.max_tokens)
            assert tokens == wanted[: len(tokens)]
            assert self.texts[index] == text(tokens)
        if self.ending == "finished":
            assert {i: len(t) for i, t in self.tokens.items()} == {
                i: length(self.request, i) for i in range(self.request.outputs)
            }

    def _end(self, ending: str | BatonError) -> None:
        assert self.ending is None, "a second final answer"
        self.ending = ending


class Chaos:
    """Everything that goes wrong, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self.world: World
        self._over: set[str] = set()  # requests whose client has had its final answer, or is gone

    async def run(self, clients: int = 10) -> list[Client]:
        """Clients come over some seconds while replicas fail, die and return."""
        rng = self._rng
        self.world = World(self._behave, rng.randint(0, 3), rng.randint(1, 3), seed=self._seed)
        if rng.random() < 0.3:
            self._begin_rollout()
        made = [Client(self._request(i)) for i in range(clients)]
        async with asyncio.TaskGroup() as group:
            for client in made:
                group.create_task(self._live(client))
            for replica_id in list(self.world.workers.fleet().replicas):
                if rng.random() < 0.4:
                    group.create_task(self._die(replica_id))
                elif rng.random() < 0.4:
                    group.create_task(self._drain(replica_id))
        return made

    def _begin_rollout(self) -> None:
        """A second version serves beside the first: other blocks, and perhaps other tokens."""
        for role, name in ((Role.PREFILL, "p"), (Role.DECODE, "d")):
            identity = self._rng.choice(["m", "m2"])
            self.world.workers.add(f"{name}new", role, kv_fingerprint="f2", model_identity=identity)

    def _request(self, i: int) -> GenerationRequest:
        rng = self._rng
        return request(f"r{i}", rng.choice([1, 16, 17, 100, 700]), rng.randint(1, 12), rng.choice([1, 1, 1, 3]))

    async def _live(self, client: Client) -> None:
        rng = self._rng
        await asyncio.sleep(rng.random() * 3)
        leave_after = rng.randint(1, 5) if rng.random() < 0.1 else None
        pause_s = rng.choice([0.0, 0.0, 0.05, 1.5])
        work = asyncio.ensure_future(client.run(self.world.coordinator, leave_after, pause_s))
        if rng.random() < 0.15:
            asyncio.get_running_loop().call_later(rng.random() * 2, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            client.ending = client.ending or "gone"
        name = client.request.request_id
        self._over.add(name)
        assert not self.world.workers.working_for(name), "work goes on after the end"

    async def _drain(self, replica_id: str) -> None:
        """Out of service; then back as the same, or gone, perhaps with work that nobody took, and back as another."""
        rng, workers = self._rng, self.world.workers
        role = workers.fleet().replicas[replica_id].role
        await asyncio.sleep(rng.random() * 4)
        workers.drain(replica_id, rng.choice([0.0, rng.random() * 2]), rng.choice([0.0, 0.1]))
        await asyncio.sleep(rng.random() * 3)
        if rng.random() < 0.3:
            workers.undrain(replica_id)
            return
        workers.kill(replica_id)
        workers.forget(replica_id)
        if rng.random() < 0.7:
            await asyncio.sleep(rng.random())
            workers.add(replica_id, role)

    async def _die(self, replica_id: str) -> None:
        rng, workers = self._rng, self.world.workers
        role = workers.fleet().replicas[replica_id].role
        await asyncio.sleep(rng.random() * 4)
        workers.kill(replica_id)
        await asyncio.sleep(rng.choice([0.0, 0.3]))
        workers.forget(replica_id)
        await asyncio.sleep(rng.random() * 2)
        if rng.random() < 0.5:
            workers.add(replica_id, role)

    def _behave(self, _: str, leg: Leg) -> Behaviour:
        assert leg.request.request_id not in self._over, "work begins after the end"
        rng = self._rng
        faults = [ReplicaLost, ReplicaLost, EngineFailed, NoReplicaReady, InvalidRequest, DeadlineExceeded]
        return Behaviour(
            start_s=rng.random() * (0.3 if leg.role == "decode" else 1.0),
            gap_s=rng.choice([0.0, 0.01, 0.1, 3.0 if rng.random() < 0.1 else 0.02]),
            step_tokens=rng.randint(1, 3),
            error=rng.choice(faults)("injected") if rng.random() < 0.2 else None,
            error_s=rng.choice([0.0, rng.random() * 0.5, rng.random() * 2]),
            hangs=rng.random() < 0.04,
            cut_off=rng.random() < 0.1,
        )


EXPECTED_ERRORS = (
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    NoReplicaReady,
    Overloaded,
    ReplicaLost,
)
