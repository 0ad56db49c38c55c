"""What a user writes: the frozen schema of a Baton deployment.

Owns every knob, its default, its unit and its bounds. Refuses unknown keys. Knows nothing of Ray, vLLM or the
other packages: `cluster.app:build` receives a `BatonConfig` and does all the wiring.

A file is what `serve deploy` and `serve run` take: Ray Serve's own keys outside, a `BatonConfig` under
`applications[0].args`. `load` reads such a file; every error names the key, what was given and what is allowed.
"""

from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ByteSize, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from configs.frozen import Frozen
from configs.profile_names import allowed, is_known
from configs.security import SecurityConfig

PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Size = Annotated[ByteSize, Field(gt=0)]


class ModelConfig(Frozen):
    """Which model is served and under which name."""

    path: str = Field(min_length=1, description="a local folder, a name `baton model` knows, or a hub name")
    served_name: str | None = Field(None, min_length=1, description="name clients use; default: the path's last part")
    max_model_len: int | None = Field(None, gt=0, description="tokens of prompt plus output; default: the model's own")

    @property
    def name(self) -> str:
        """The name clients use."""
        return self.served_name or PurePath(self.path).name


class VllmEngineConfig(Frozen):
    """A real vLLM engine. `args` are vLLM's own engine arguments, by their Python names."""

    kind: Literal["vllm"] = "vllm"
    args: dict[str, JsonValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict, description="environment of the replica before vLLM is imported")
    replay_tokens: int = Field(
        4096,
        ge=0,
        description="tokens sampled once more, a step each, when an answer with a seed, penalties or a grammar goes on"
        " here after its worker was lost; one that had more fails",
    )


class SimulatedEngineConfig(Frozen):
    """An engine without weights: real blocks and bytes, modelled time. Seconds are divided by `speed`."""

    kind: Literal["simulated"] = "simulated"
    block_size: int = Field(16, gt=0, description="tokens in a KV block")
    device_blocks: int = Field(4096, gt=0, description="blocks on the simulated device")
    kv_bytes_per_token: int = Field(256, ge=4, description="bytes of KV a token takes in a block")
    max_running: int = Field(64, gt=0, description="requests in one batch")
    max_batched_tokens: int = Field(2048, gt=0, description="prompt tokens computed in one step")
    prefill_tokens_per_s: float = Field(8000.0, gt=0)
    decode_step_s: float = Field(0.010, ge=0, description="fixed part of a step")
    decode_request_s: float = Field(0.0002, ge=0, description="what each running request adds to a step")
    speed: float = Field(1.0, gt=0, description="2.0 makes simulated time pass twice as fast")


EngineConfig = Annotated[VllmEngineConfig | SimulatedEngineConfig, Field(discriminator="kind")]


class PoolConfig(Frozen):
    """One pool of workers: how many, which engine, what each replica asks of its node."""

    replicas: int = Field(1, ge=0, le=4096)
    min_replicas: int | None = Field(None, gt=0, le=4096, description="autoscaling keeps these; default: replicas")
    max_replicas: int | None = Field(
        None, gt=0, le=4096, description="autoscaling starts no more; default: replicas. It is on above min_replicas"
    )
    engine: EngineConfig = Field(default_factory=VllmEngineConfig)
    num_cpus: float = Field(1.0, ge=0)
    num_gpus: float = Field(0.0, ge=0)
    resources: dict[str, float] = Field(default_factory=dict, description="custom Ray resources of each replica")
    label_selector: dict[str, str] = Field(default_factory=dict, description="node labels a replica needs")
    cores: int | None = Field(None, gt=0, description="CPU cores a replica has to itself (pinned); null: not pinned")

    @property
    def least(self) -> int:
        """Replicas that are always there."""
        return self.replicas if self.min_replicas is None else self.min_replicas

    @property
    def most(self) -> int:
        """Replicas that may be there."""
        return self.replicas if self.max_replicas is None else self.max_replicas

    @model_validator(mode="after")
    def _begins_within_its_bounds(self) -> Self:
        if not self.least <= self.replicas <= self.most:
            raise ValueError(
                f"replicas {self.replicas} is not from min_replicas {self.least} to max_replicas {self.most}"
            )
        if self.replicas == 0 and self.most:
            raise ValueError("max_replicas is for a pool that has replicas to begin with; replicas is 0")
        return self


class AdmissionConfig(Frozen):
    """What a gateway does with more than the replicas can take: what may wait for its turn, and how long.

    A tenant is a `cache_salt`, as in the store: requests without one are one tenant. Whoever may set it should be
    trusted, e.g. a proxy that knows its users. `docs/decisions/admission.md` says how turns are taken.
    """

    max_wait_s: PositiveSeconds | None = Field(
        2.0,
        description="who would wait longer until a replica begins is refused with 429, so that the others' first"
        " tokens come within this and what their prompts take; null: all wait",
    )
    max_waiting_requests: int = Field(2048, ge=0, description="more are refused with 429; 0: nobody waits")
    max_waiting_tokens: int = Field(4_000_000, gt=0, description="between all that wait; a single request always may")
    tenant_weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="share of the tokens by cache salt, in proportion, while several wait; 1.0 where not named",
    )


class GatewayConfig(Frozen):
    """The OpenAI-compatible front door."""

    replicas: int = Field(1, gt=0, le=256)
    num_cpus: float = Field(0.5, ge=0)
    label_selector: dict[str, str] = Field(
        default_factory=dict, description="node labels a gateway needs, e.g. {pool: head}"
    )
    max_body_bytes: Size = Field(ByteSize(8 * 1024 * 1024), description="a larger body is refused with 413")
    max_requests_in_flight: int = Field(1024, gt=0, description="outputs; more wait for their turn")
    admission: AdmissionConfig = Field(default_factory=AdmissionConfig)
    max_attempts: int = Field(3, gt=0, le=16, description="replicas tried for one request before it fails")
    max_moves: int = Field(
        32, ge=0, description="times a request moves off replicas that drain, which costs no attempt; then it stays"
    )
    max_ongoing_requests: int = Field(4096, gt=0, description="Ray Serve's own bound per gateway replica")
    explain_header: bool = Field(
        False, description="answers tell in `x-baton-route` where they were placed and what was predicted"
    )
    otlp_traces_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector for a span of each request, e.g. http://collector:4318/v1/traces"
    )
    api_args: dict[str, JsonValue] = Field(
        default_factory=dict, description="vLLM API server arguments, e.g. tool_call_parser, chat_template"
    )


class DiskConfig(Frozen):
    """Files below a node's arena: blocks that it gives up are kept there, also across restarts."""

    path: str = Field(min_length=1, description="a folder on a fast local disk of every node; made when missing")
    bytes: Size = Field(description="of files, in all, for each store")
    max_waiting_writes: int = Field(64, gt=0, description="at most so many blocks wait to be written")
    max_reads: int = Field(256, gt=0, description="blocks being read from disk at once")
    recall_s: PositiveSeconds = Field(0.25, description="the longest an engine's question waits for blocks on disk")


class StoreConfig(Frozen):
    """The KV store of each node.

    Between the watermarks blocks are evicted ahead of need and in batches, so that an engine that asks for slots finds
    them free: a reservation that has to evict waits for it.
    """

    bytes: Size = Field(ByteSize(1024**3), description="size of a node's arena in shared memory")
    max_frame_bytes: ByteSize = Field(
        ByteSize(64 * 1024 * 1024),
        ge=1024**2,  # the keys and labels of as many blocks as are told at once take less than that
        description="a longer frame closes its connection",
    )
    max_handoffs: int = Field(65_536, gt=0, description="hand-offs remembered at once; more are refused")
    handoff_ttl_s: PositiveSeconds = Field(120.0, description="a hand-off nobody collected is dropped after this")
    eviction: Literal["prefix_aware", "lru", "arc", "s3_fifo", "sieve"] = Field(
        "prefix_aware", description="which block goes when the arena is full; see docs/decisions/eviction.md"
    )
    high_watermark: Fraction = Field(0.99, description="with more of the arena in use blocks are evicted ahead of need")
    low_watermark: Fraction = Field(0.98, description="until no more of the arena than this is in use")
    tenant_weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="share of the arena by cache salt, in proportion; 1.0 where not named. Nobody is pushed below it",
    )
    disk: DiskConfig | None = Field(None, description="a tier below the arena; null: blocks it gives up are gone")
    streams: int = Field(2, gt=0, le=16, description="TCP lanes a store opens to each peer; a pull uses all")
    transport: Literal["auto", "tcp", "nixl"] = Field(
        "auto",
        description="how blocks move between nodes; auto: NIXL where both have it and an RDMA device, else TCP. With"
        " security.tls always TCP",
    )
    idle_exit_s: PositiveSeconds = Field(60.0, description="a store that no worker uses ends after this")

    @model_validator(mode="after")
    def _low_is_not_above_high(self) -> Self:
        if self.low_watermark > self.high_watermark:
            raise ValueError(f"low_watermark {self.low_watermark} is above high_watermark {self.high_watermark}")
        return self


def _is_profile(name: str) -> str:
    if not is_known(name):
        raise PydanticCustomError("profile_name", "Input should be {allowed}", {"allowed": allowed()})
    return name


ProfileName = Annotated[str, AfterValidator(_is_profile)]


class RatesConfig(Frozen):
    """How long things take on a replica before anything was measured there; null: as in the profile."""

    prefill_step_s: float | None = Field(None, ge=0, description="fixed part of a step that computes prompt tokens")
    prefill_token_s: float | None = Field(None, gt=0, description="computing one prompt token")
    prefill_attention_s: float | None = Field(None, ge=0, description="for each prompt token and each token before it")
    chunk_tokens: int | None = Field(None, gt=0, description="prompt tokens computed in one step at most")
    decode_step_s: float | None = Field(None, ge=0, description="fixed part of a decode step")
    decode_request_s: float | None = Field(None, ge=0, description="what each running request adds to a decode step")
    decode_context_token_s: float | None = Field(None, ge=0, description="what each token of context adds to it")
    max_running: int | None = Field(None, gt=0, description="requests in one batch at most")
    kv_bytes_per_token: int | None = Field(None, gt=0, description="KV cache of one token")
    host_bytes_per_s: float | None = Field(None, gt=0, description="loading blocks from the node's own store")
    host_latency_s: float | None = Field(None, ge=0)
    remote_bytes_per_s: float | None = Field(None, gt=0, description="moving blocks between the stores of two nodes")
    remote_latency_s: float | None = Field(None, ge=0)


class RouterConfig(Frozen):
    """How replicas are chosen. `kv_aware` predicts time from what each replica has cached and has to do."""

    policy: Literal["kv_aware", "least_work"] = Field("kv_aware", description="least_work knows nothing of caches")
    profile: ProfileName | None = Field(
        None, description="one that `baton profile list` names, or a file; default: what suits the decode engine"
    )
    rates: RatesConfig = Field(default_factory=RatesConfig, description="values that replace the profile's")
    itl_target_s: PositiveSeconds | None = Field(
        None, description="time between tokens to keep; replicas that would exceed it are chosen last"
    )
    zone_label: str = Field(
        "zone", min_length=1, description="node label, e.g. a rack's name, that nodes have in common which are near"
    )
    far_factor: float = Field(
        2.0, ge=1, description="how many times longer blocks take to a node of another zone than to one of the same"
    )
    index_bytes: Size = Field(
        ByteSize(512 * 1024 * 1024), description="what a gateway's index of blocks may take; more earn no credit"
    )
    decode_weight: float = Field(
        0.1, ge=0, description="least_work only: work of one expected output token, in prompt tokens"
    )


class PoolsConfig(Frozen):
    """Lending replicas between prefill and decode: a replica changes its role at once, without a restart.

    That happens by itself where both targets are known: `ttft_target_s` here, and `router.itl_target_s`. By hand it
    can be done always: `baton pools`. `docs/decisions/lending.md` says what moves whom. What lending cannot give,
    autoscaling starts, where a pool's `max_replicas` allows more: `docs/decisions/autoscaling.md`.
    """

    lending: Literal["auto", "by_hand"] = Field("auto", description="auto: also by itself, to keep the targets")
    ttft_target_s: PositiveSeconds = Field(2.0, description="time to first token to keep")
    prefill_floor: int = Field(1, ge=0, description="replicas that always prefill, as long as there are enough")
    decode_floor: int = Field(1, gt=0, description="replicas that always decode")
    interval_s: PositiveSeconds = Field(0.25, description="how often reports are looked at")
    cooldown_s: PositiveSeconds = Field(10.0, description="after a change nobody is lent the other way for so long")
    turns: int = Field(3, gt=0, description="changes of direction that may follow each other so")
    turn_every_s: PositiveSeconds = Field(60.0, description="one more of them is allowed every so many seconds")
    spares: int = Field(0, ge=0, description="autoscaling: replicas of each pool above the need, for what may come")
    scale_up_after_s: PositiveSeconds = Field(
        10.0, description="autoscaling: more are started after so long with too few, lending included"
    )
    scale_down_after_s: PositiveSeconds = Field(
        300.0, description="autoscaling: some are drained after so long with too many"
    )


class TimeoutConfig(Frozen):
    """Every wait has one. Seconds."""

    request_s: PositiveSeconds = Field(600.0, description="a request that takes longer fails with 504")
    body_s: PositiveSeconds = Field(60.0, description="a request whose body is not there by then fails with 408")
    handoff_s: PositiveSeconds = Field(
        60.0, description="how long decode waits for prefill's blocks before it recomputes"
    )
    replica_s: PositiveSeconds = Field(
        120.0, description="how long a request that lost its replica waits when no other is there, before it fails"
    )
    load_s: PositiveSeconds = Field(5.0, description="an engine's round trip to its store; later, it goes on without")
    connect_s: PositiveSeconds = Field(5.0, description="opening and greeting a data-plane or store connection")
    ping_s: PositiveSeconds = Field(2.0, description="interval of liveness pings on an idle connection")
    dead_s: PositiveSeconds = Field(10.0, description="a silent connection is given up after this")
    start_s: PositiveSeconds = Field(900.0, description="an engine that is not ready by then has failed to start")
    drain_finish_s: PositiveSeconds = Field(
        60.0, description="live streams of a worker that drains may end there for so long; then they go on elsewhere"
    )
    drain_s: PositiveSeconds = Field(
        600.0, description="a replica going away waits this long for streams that nobody else can go on with"
    )


class HealthConfig(Frozen):
    """When a replica's engine counts as wedged: it has something to do and makes no step.

    What the replica is working on then goes on elsewhere at once, nothing new is sent to it, and Serve replaces it. How
    long a step may take follows from the engine itself: one that needs a second for a few tokens may take minutes for a
    prompt.
    """

    stall_s: PositiveSeconds = Field(
        30.0, description="an engine that has work and makes no step for this long is wedged"
    )
    stall_steps: float = Field(
        1000.0, ge=0, description="or for as long as so many steps of a few tokens take there, if that is longer"
    )
    stall_most_s: PositiveSeconds = Field(600.0, description="but never for longer than this")
    probe_s: PositiveSeconds = Field(10.0, description="an engine without work is asked for a step this often")

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> Self:
        if self.stall_s > self.stall_most_s:
            raise ValueError(f"stall_s {self.stall_s:g} is above stall_most_s {self.stall_most_s:g}")
        return self


class WorkerUserConfig(Frozen):
    """`user_config` of the deployments PrefillWorker and DecodeWorker in a Serve file: what a redeploy changes in
    running workers, restarting none.
    """

    drain_finish_s: PositiveSeconds | None = Field(None, description="replaces timeouts.drain_finish_s; null: does not")


class BatonConfig(Frozen):
    """A whole deployment: `args:` of the Serve application `cluster.app:build`."""

    model: ModelConfig
    prefill: PoolConfig = Field(default_factory=PoolConfig)
    decode: PoolConfig = Field(default_factory=PoolConfig)
    gateway: GatewayConfig = Field(default_factory=GatewayConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)
    router: RouterConfig = Field(default_factory=RouterConfig)
    pools: PoolsConfig = Field(default_factory=PoolsConfig)
    timeouts: TimeoutConfig = Field(default_factory=TimeoutConfig)
    health: HealthConfig = Field(default_factory=HealthConfig)
    security: SecurityConfig = Field(default_factory=SecurityConfig)

    @property
    def scales(self) -> bool:
        """Whether the number of replicas follows the load."""
        return any(pool.least < pool.most for pool in (self.prefill, self.decode))
