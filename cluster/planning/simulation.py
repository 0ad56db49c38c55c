"""A cluster in virtual time: a trace comes in, an outcome comes out.

`Simulation` plays the world between the gateways and the workers: it hands requests to gateways in turn, legs to
workers, and what happens there back to the gateway that asked.
"""

from collections.abc import Callable, Sequence
from functools import partial

from cluster.planning.device_cache import CacheChanges
from cluster.planning.events import Events
from cluster.planning.gateway import Attempt, Gateway, Wait, Wish
from cluster.planning.handoff import Handoff
from cluster.planning.host_cache import HostCache
from cluster.planning.itl_histogram import ItlHistogram
from cluster.planning.job import Job
from cluster.planning.outcome import Outcome, Record, WorkerOutcome
from cluster.planning.settings import ClusterSettings, WorkerSettings
from cluster.planning.sight import Sight
from cluster.planning.site import KV_FINGERPRINT, Site, build_worker
from cluster.planning.step import StepEnd
from cluster.planning.trace import Trace, TraceRequest
from routing.fleet import Role, store_of
from routing.index import KvIndex, Tier


class Simulation:
    """Owns the sites and the open attempts. Gateways take turns, request by request.

    `on_finished` is told the number of each request that made its last token.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        gateways: Sequence[Gateway],
        trace: Trace,
        on_finished: Callable[[int], None] | None = None,
    ) -> None:
        self.events = Events()
        self.itl = ItlHistogram()
        self.sites: dict[str, Site] = {}
        self.records: list[Record] = []
        self._settings = settings
        self._gateways = gateways
        self._trace = trace
        self._on_finished = on_finished
        self._attempts: dict[Job, Attempt] = {}
        self._handoffs: dict[Job, Handoff] = {}
        self._given: dict[str, int] = {}
        self._hosts: dict[str, HostCache] = {}
        self._waits = 0
        self._sights = [Sight(self.sites, number, settings.network.report_period_s) for number in range(len(gateways))]
        self._build()

    def run(self) -> Outcome:
        """Until nothing happens any more."""
        self.events.run()
        return self.outcome()

    def offer(self, request: TraceRequest) -> int:
        """A request beside the trace comes now. Returns its number, the place of its record."""
        number = len(self.records)
        self.records.append(Record(self.events.now, request.prompt_tokens, request.output_tokens))
        self._arrive(number, request)
        return number

    def kill(self, replica_id: str) -> None:
        """A worker dies now. Its gateways know at once, and place what it had elsewhere."""
        site = self.sites.pop(replica_id)
        self._look_anew()
        lost = site.kill()
        for gateway in self._gateways:
            gateway.lost(replica_id)
        for job in lost:
            if (attempt := self._attempts.get(job)) is not None:
                self._leg_lost(attempt, job, replica_id)

    def lend(self, replica_id: str, role: Role) -> None:
        """A worker is given work of this role from now on."""
        self.sites[replica_id].role = role
        self._look_anew()

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time of the simulation."""
        self.events.at(time, action)

    def check(self) -> None:
        """Assert what every part of it promises; with nothing open, that nothing is held."""
        for site in self.sites.values():
            site.worker.check()
            assert self._attempts or not site.worker.device.held, f"{site!r} holds blocks for nobody"
        for gateway in self._gateways:
            gateway.mind.ledger.check()
            open_leases = gateway.mind.ledger.statistics().open_leases
            assert self._attempts or open_leases == self._waits, "a lease was not released"

    def outcome(self) -> Outcome:
        """What there is so far."""
        workers = [
            WorkerOutcome(
                replica_id=site.settings.replica_id,
                role=site.settings.role.value,
                requests=self._given.get(site.settings.replica_id, 0),
                busy_s=site.worker.totals.busy_s,
                computed_tokens=site.worker.totals.computed_tokens,
                preempted=site.worker.totals.preempted,
            )
            for site in self.sites.values()
        ]
        return Outcome(self.records, workers, self.itl, self.events.now)

    # What sites tell (`Listener`)

    def step_ended(self, site: Site, end: StepEnd) -> None:
        """See `Listener`."""
        if end.emitting:
            self.itl.add(end.step_s, end.emitting * end.steps)
        for chunk in end.chunks:
            if (handoff := self._handoffs.get(chunk.job)) is not None:
                handoff.progressed(chunk, end.starts_at, self.events.now)
        for job in end.completed:
            if (attempt := self._attempts.get(job)) is not None:
                self._prompt_computed(attempt, job)
        for job in end.done:
            if (attempt := self._attempts.pop(job, None)) is not None and job is attempt.decode:
                self._finished(attempt)

    def cache_changed(self, site: Site, tier: Tier, changes: CacheChanges) -> None:
        """See `Listener`. A node's memory is told of by each of its workers."""
        tellers = [site] if tier is Tier.DEVICE else self._neighbours(site)
        for gateway in self._gateways:
            if gateway.mind.index is not None:
                for teller in tellers:
                    _apply(gateway.mind.index, teller.settings.replica_id, tier, changes)

    def _build(self) -> None:
        for gateway in self._gateways:
            gateway.start(lambda: self.events.now)
        for number, settings in enumerate(self._settings.workers):
            worker = build_worker(settings, number, self._hosts)
            site = Site(settings, self._settings.network, self.events, self, worker, len(self._gateways))
            self.sites[settings.replica_id] = site
            for gateway in self._gateways:
                gateway.know(settings.replica_id, store_of(settings.node_id, KV_FINGERPRINT), _tiers(settings))
        for number, request in enumerate(self._trace.requests):
            self.records.append(Record(request.arrival_s, request.prompt_tokens, request.output_tokens))
            self.events.at(request.arrival_s, partial(self._arrive, number, request))

    def _arrive(self, number: int, request: TraceRequest) -> None:
        size = self._trace.block_size_tokens
        self._place(Wish(number, request, self._settings.max_tokens, size))

    def _place(self, wish: Wish) -> None:
        which = wish.number % len(self._gateways)
        placed = self._gateways[which].place(wish, self._sights[which].fleet(self.events.now), self.events.now)
        record, predicted = self.records[wish.number], placed.decision.predicted
        if predicted is not None and not record.attempts and not wish.waits:
            record.predicted_ttft_s = predicted.ttft_s
        if isinstance(placed, Wait):
            self._await(self._gateways[which], placed)
            return
        record.attempts += 1
        record.decode, record.prefill = placed.decision.decode, placed.decision.prefill
        self._open(placed)

    def _await(self, gateway: Gateway, wait: Wait) -> None:
        """Place it when its blocks are there, when they will not come, or when they are late."""
        arrivals = gateway.arrivals
        assert arrivals is not None, "it was not to wait"
        self._waits += 1

        def end() -> None:
            self._waits -= 1
            self._place(gateway.waited(wait, self.events.now))

        def late() -> None:
            if arrivals.forget(number):
                end()

        number = arrivals.wait(wait.coming, lambda _: self.events.at(self.events.now, end))
        self.events.at(self.events.now + wait.coming.patience_s, late)

    def _open(self, attempt: Attempt) -> None:
        """Both legs at once: the decode worker waits for the blocks, its engine does not."""
        decode_site = self.sites[attempt.decision.decode]
        self._expect(decode_site, attempt, attempt.decode)
        if attempt.prefill is None:
            self._submit(decode_site, attempt)
            return
        assert attempt.decision.prefill is not None
        prefill_site = self.sites[attempt.decision.prefill]
        self._expect(prefill_site, attempt, attempt.prefill)
        self._handoffs[attempt.prefill] = Handoff(
            attempt.prefill, attempt.decode, decode_site, self._settings.network.transfer_latency_s
        )
        self._submit(prefill_site, attempt)

    def _submit(self, site: Site, attempt: Attempt) -> None:
        """The leg that computes the prompt goes to its engine, after what comes from another node's memory."""
        job, fetch = attempt.computing, attempt.decision.fetch
        if fetch is None:
            site.submit(job)
            return
        size = site.settings.engine.block_size_tokens
        source = self._hosts.get(fetch.node_id)
        held = source.prefix(job.keys[: fetch.end_tokens // size]) if source is not None else 0
        keys = job.keys[fetch.start_tokens // size : held]
        block_bytes = size * site.settings.engine.kv_bytes_per_token
        self.records[job.request].fetched_tokens += len(keys) * size
        moved_at = site.ingress.move(len(keys) * block_bytes, self.events.now)
        arrived_at = moved_at + self._settings.network.transfer_latency_s
        self.events.at(arrived_at, partial(self._fetched, site, job, keys))

    def _fetched(self, site: Site, job: Job, keys: Sequence[int]) -> None:
        if job in self._attempts:
            site.receive(keys)
            site.submit(job)

    def _expect(self, site: Site, attempt: Attempt, job: Job) -> None:
        self._attempts[job] = attempt
        self._given[site.settings.replica_id] = self._given.get(site.settings.replica_id, 0) + 1
        site.expect(job)

    def _prompt_computed(self, attempt: Attempt, job: Job) -> None:
        record = self.records[job.request]
        if job is attempt.prefill:
            record.computed_tokens += job.work_tokens
            self._gateway(attempt).prompt_computed(attempt, self.events.now)
            self._end_handoff(self._handoffs.pop(job))
            return
        if attempt.prefill is None:
            self._gateway(attempt).prompt_computed(attempt, self.events.now)
        if record.first_s < 0:
            record.first_s = self.events.now

    def _end_handoff(self, handoff: Handoff) -> None:
        handoff.end()
        self.events.at(handoff.arrived_at, partial(self._submit_decode, handoff))

    def _submit_decode(self, handoff: Handoff) -> None:
        if handoff.decode in self._attempts:
            handoff.destination.submit(handoff.decode)

    def _finished(self, attempt: Attempt) -> None:
        record = self.records[attempt.wish.number]
        record.last_s = self.events.now
        record.computed_tokens += attempt.decode.work_tokens
        self._gateway(attempt).finished(attempt, self.events.now)
        if self._on_finished is not None:
            self._on_finished(attempt.wish.number)

    def _leg_lost(self, attempt: Attempt, job: Job, replica_id: str) -> None:
        """Prefill lost: decode computes what did not arrive. Decode lost: all again elsewhere, tokens made kept."""
        del self._attempts[job]
        self.records[job.request].computed_tokens += job.work_tokens
        if job is attempt.prefill:
            self._gateway(attempt).prompt_computed(attempt, self.events.now)
            self._end_handoff(self._handoffs.pop(job))
            return
        self._gateway(attempt).given_up(attempt, self.events.now)
        if attempt.prefill is not None and self._attempts.pop(attempt.prefill, None) is not None:
            self._handoffs.pop(attempt.prefill)
            assert attempt.decision.prefill is not None
            self.sites[attempt.decision.prefill].cancel(attempt.prefill)
        wish = attempt.wish
        exclude, emitted = wish.exclude | {replica_id}, wish.emitted + job.emitted
        self._place(Wish(wish.number, wish.request, wish.max_tokens, wish.block_size_tokens, exclude, emitted))

    def _look_anew(self) -> None:
        for sight in self._sights:
            sight.look_anew()

    def _gateway(self, attempt: Attempt) -> Gateway:
        return self._gateways[attempt.decode.gateway]

    def _neighbours(self, site: Site) -> list[Site]:
        return [other for other in self.sites.values() if other.settings.node_id == site.settings.node_id]


def _apply(index: KvIndex, replica_id: str, tier: Tier, changes: CacheChanges) -> None:
    """No key is in both: told one after the other, an index need not look at what came for what has gone again."""
    if changes.removed:
        index.apply(replica_id, tier, (), changes.removed)
    if changes.stored:
        index.apply(replica_id, tier, changes.stored, ())


def _tiers(settings: WorkerSettings) -> Sequence[Tier]:
    """Where a worker keeps blocks."""
    return tuple(Tier) if settings.engine.host_blocks else (Tier.DEVICE,)
