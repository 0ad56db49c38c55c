"""The data plane's wire: every message between a gateway replica and a worker replica, and nothing else.

One TCP connection per (gateway, worker), `TCP_NODELAY` on both ends. Frames are MessagePack, each preceded by its
length as an unsigned 32-bit little-endian integer. A worker speaks first (`Challenge`), a gateway answers (`Hello`),
the worker accepts (`Welcome`) or closes (`Refused`). After that a gateway opens streams (`Generate`) by numbers of
its own and the worker answers on them until a delta that carries a `finish_reason` for every output, or
`StreamFailed`, ends the stream.

Flow control: an output's deltas merge. Whoever cannot send or deliver yet (a full socket, a slow client) merges what
waits for one output into one delta, so that nothing queues without bound and no stream waits for another.
"""

from typing import Any, Literal

import msgspec

from kvtransfer.framing import BodyDecoder
from kvtransfer.framing import frame as framed

PROTOCOL_VERSION = 7

Role = Literal["prefill", "decode"]
FailureKind = Literal["invalid", "engine", "unavailable", "deadline", "draining", "cannot_continue"]
KvTier = Literal["device", "host"]
KV_TIERS: tuple[KvTier, ...] = ("device", "host")


class TokenLogprob(msgspec.Struct, array_like=True, frozen=True):
    """One candidate of one position."""

    token_id: int
    logprob: float
    rank: int | None
    decoded: str | None


PositionLogprobs = list[TokenLogprob]


class LegReport(msgspec.Struct, array_like=True, frozen=True):
    """What one leg cost, sent with its last delta. Seconds and tokens; `*_blocks` counts KV blocks of the prompt."""

    held_s: float = 0.0  # the worker waiting for blocks before its engine got the request
    queued_s: float = 0.0  # inside the engine, before the first step
    first_token_s: float = 0.0  # from the engine's taking the request to its first token
    handoff_outcome: str = ""  # "", "ready", "failed", "late"
    announced_blocks: int = 0
    present_blocks: int = 0
    pulled_blocks: int = 0
    pulled_bytes: int = 0
    loaded_blocks: int = 0  # taken from the store by the engine
    recomputed_blocks: int = 0  # announced by prefill but computed again here
    recompute_reason: str = ""  # "", "late", "failed", "corrupt", "evicted", "full"
    fetch_outcome: str = ""  # "", "ready", "absent", "failed", "late"


class Delta(msgspec.Struct, array_like=True, omit_defaults=True):
    """New tokens of one output of one stream. Text is detokenised in the worker; ids always travel with it."""

    index: int  # which output, for n > 1
    token_ids: list[int]
    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[PositionLogprobs] | None = None  # one entry for each token id
    cumulative_logprob: float | None = None
    num_cached_tokens: int | None = None  # of the prompt; from the first delta on
    prompt_logprobs: list[PositionLogprobs | None] | None = None  # with the first delta
    report: LegReport | None = None  # with the last delta

    def absorb(self, later: "Delta") -> None:
        """Append `later`, which follows this delta on the same output."""
        self.token_ids += later.token_ids
        self.text += later.text
        if later.logprobs is not None:
            self.logprobs = (self.logprobs or []) + later.logprobs
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason
        self.cumulative_logprob = later.cumulative_logprob
        if self.num_cached_tokens is None:
            self.num_cached_tokens = later.num_cached_tokens
        if self.prompt_logprobs is None:
            self.prompt_logprobs = later.prompt_logprobs
        self.report = later.report


class Emitted(msgspec.Struct, array_like=True, frozen=True):
    """What the client has had of an output that is not finished: its leg was lost, another worker goes on from here.

    Of the text that `token_ids` make, `text_chars` characters were sent: what a stop string or an unfinished character
    held back was not. `cumulative_logprob` is that of the last token, where log-probabilities were asked for.
    """

    index: int
    token_ids: list[int]
    text_chars: int = 0
    cumulative_logprob: float | None = None


class Handoff(msgspec.Struct, array_like=True, frozen=True):
    """Names one movement of KV blocks. `source` is the prefill worker's store address; unused on the prefill leg."""

    handoff_id: str
    source: str = ""
    deadline_s: float = 0.0


class Fetch(msgspec.Struct, array_like=True, frozen=True):
    """Blocks to bring from another node's store before the engine gets the request: those of the prompt's tokens from
    `start_tokens` up to `end_tokens`, as far as the store at `source` has them. What is not here after `deadline_s` is
    computed. `fetch_id` is never used twice.
    """

    fetch_id: str
    source: str
    start_tokens: int
    end_tokens: int
    deadline_s: float


class WorkerInfo(msgspec.Struct, array_like=True, frozen=True):
    """What a worker is; fixed for its life, except where its store is, and its role. `home` is the one it was started
    for, `role_epoch` grows with each change, and one that is `pinned` is not lent but by hand.
    """

    replica_id: str
    role: Role
    node_id: str
    engine: str  # "vllm" or "simulated"
    store_address: str
    kv_fingerprint: str
    block_size_tokens: int
    max_model_len: int
    epoch: str  # names this life of the replica
    kv_blocks: int = 0  # the device's capacity in blocks; 0: unknown
    model_identity: str = ""  # equal where the same prompt is followed by the same tokens
    home: Role | None = None  # None: the role it has
    role_epoch: int = 0
    pinned: bool = False
    zone: str = ""  # nodes of one zone are near each other


# Worker to gateway


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    """First frame. `nonce` is 32 random bytes."""

    protocol: int
    nonce: bytes


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The gateway is in. Comes again when the worker's store has moved, with its new address, or its role changed."""

    worker: WorkerInfo


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The connection closes after this."""

    reason: str


class Deltas(msgspec.Struct, frozen=True, tag="deltas"):
    """New tokens of any number of streams: pairs of stream number and delta."""

    items: list[tuple[int, Delta]]


class StreamFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The stream ended without an answer. `invalid` is the request's fault (400), the others are ours."""

    stream: int
    kind: FailureKind
    message: str


class Load(msgspec.Struct, frozen=True, tag="load"):
    """How busy a worker is; sent when it changes, at most every 50 ms, and at least every second.

    Every worker's load counts the work of all gateways; `others_*` is what of the streams open now is not of the
    gateway that gets the frame, counted as that gateway counts its own in its ledger: a request for each output that is
    decoded or waits for its blocks and for each prompt that is prefilled, and the uncached tokens of each prompt that
    is computed here and has no token yet. `counters` only grow within the worker's epoch; `gauges` are now.

    A worker that is `draining` takes no new streams; one that is `handing_back` wants its decode streams to go on
    elsewhere. Those that nobody else can take it runs to their end.
    """

    running: int
    waiting: int
    held: int  # decode requests waiting for blocks
    queued_prefill_tokens: int
    kv_usage: float  # 0..1 of the device's blocks
    healthy: bool
    draining: bool
    counters: dict[str, float] = {}
    gauges: dict[str, float] = {}
    others_requests: int = 0
    others_prefill_tokens: int = 0
    handing_back: bool = False


class KvEvents(msgspec.Struct, frozen=True, tag="kv_events"):
    """Changes of the blocks on the worker's device, or in its node's store as far as the worker knows their keys (the
    `host` tier: the workers of a node know it together), by router key: little-endian unsigned 64-bit.

    Each tier begins with a `snapshot`, which replaces all that was known of it before and may go on in frames without;
    another may come at any time. A key is in one list at most. `sequence` counts the frames of a connection, of both
    tiers, from 0: a gap means that what is known is not true any more.
    """

    sequence: int
    tier: KvTier
    snapshot: bool
    stored: bytes
    removed: bytes


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """Answer to `Ping`, with its number."""

    number: int


# Gateway to worker


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Second frame. `proof` is HMAC-SHA256(cluster secret, nonce)."""

    protocol: int
    gateway: str
    model_fingerprint: str
    proof: bytes


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Open a stream. `token_ids` are little-endian unsigned 32-bit; `sampling` is vLLM's SamplingParams in
    MessagePack, whole.

    On the prefill leg, `handoff` names under which id the prompt's blocks are announced. On the decode leg, it says
    what to wait for. The leg that computes the prompt may have to `fetch` blocks first, and takes no more than the
    first `load_limit_tokens` of the prompt from its store (None: all that is there).

    A decode leg with `emitted` goes on with those outputs, and only with those, of a request that lost its leg: each
    after its prompt and the tokens it has. `sampling` stays what it was. A prefill leg has these tokens in `token_ids`.
    """

    stream: int
    request_id: str
    role: Role
    token_ids: bytes
    sampling: msgspec.Raw
    handoff: Handoff | None = None
    fetch: Fetch | None = None
    load_limit_tokens: int | None = None
    cache_salt: str | None = None
    lora_name: str | None = None
    priority: int = 0
    deadline_s: float = 600.0
    trace_headers: dict[str, str] | None = None
    emitted: list[Emitted] = []


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """The stream is not wanted any more. Nothing follows on it. Unknown numbers are fine."""

    stream: int


class SourceLost(msgspec.Struct, frozen=True, tag="source_lost"):
    """The prefill leg of this decode stream failed: stop waiting for its blocks, compute."""

    stream: int


class LetGo(msgspec.Struct, frozen=True, tag="let_go"):
    """Nobody will come for the hand-off that a prefill leg announced here: decode was lost before it asked. Unknown ids
    are fine.
    """

    handoff_id: str


class TakeRole(msgspec.Struct, frozen=True, tag="take_role"):
    """Do this from now on; what runs finishes. Passed by when the role has changed since `epoch`, or is pinned."""

    role: Role
    epoch: int
    why: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Sent on an idle connection."""

    number: int


FromWorker = Challenge | Welcome | Refused | Deltas | StreamFailed | Load | KvEvents | Pong
FromGateway = Hello | Generate | Abort | SourceLost | LetGo | TakeRole | Ping

_encoder = msgspec.msgpack.Encoder()
from_worker = BodyDecoder[Any](FromWorker)
from_gateway = BodyDecoder[Any](FromGateway)


def encode(frame: FromWorker | FromGateway) -> bytes:
    """The frame's MessagePack, with its length in front."""
    return framed(_encoder.encode(frame))
