"""The greeting of the local and the remote protocol: its messages, and who may come in, decided without I/O.

The accepting side sends a `Challenge`; the other answers with a `Greet` that proves the secret, and gets a `Welcome`. A
wrong protocol version, secret or fingerprint is answered with the reason (`Refused`) and nothing else.
"""

import msgspec

from kvtransfer.auth import is_proven, make_nonce, prove
from kvtransfer.errors import FrameInvalid, FramingError, StoreRefused
from kvtransfer.framing import BodyDecoder

PROTOCOL_VERSION = 6

MAX_GREETING_BYTES = 4096
"""Nobody unknown may make the other side keep more than this."""


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    """First message of the server. `nonce` is 32 random bytes."""

    protocol: int
    nonce: bytes


class Greet(msgspec.Struct, frozen=True, tag="greet"):
    """First message of the client. `proof` is HMAC-SHA256(cluster secret, nonce); `name` is for logs."""

    protocol: int
    fingerprint: str
    name: str
    proof: bytes


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The client is in. `epoch` names this life of the store; `address` is where other stores reach it."""

    epoch: str
    address: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The connection closes after this."""

    reason: str


_encode = msgspec.msgpack.Encoder().encode
_greet = BodyDecoder[Greet](Greet)
_challenge = BodyDecoder[Challenge](Challenge)
_verdict = BodyDecoder[Welcome | Refused](Welcome | Refused)


class Gatekeeper:
    """Greets one newcomer."""

    def __init__(self, secret: bytes, fingerprint: str) -> None:
        self._secret = secret
        self._fingerprint = fingerprint
        self._nonce = make_nonce()

    def challenge(self) -> bytes:
        """The body of the first frame."""
        return _encode(Challenge(PROTOCOL_VERSION, self._nonce))

    def admit(self, body: bytes) -> Greet:
        """The newcomer's greeting, if it may come in. Raises `StoreRefused` with the reason."""
        try:
            greet = _greet.decode(body)
        except FrameInvalid as error:
            raise StoreRefused(f"bad greeting: {error}") from None
        if greet.protocol != PROTOCOL_VERSION:
            raise StoreRefused(f"protocol {greet.protocol}, this store speaks {PROTOCOL_VERSION}")
        if not is_proven(self._secret, self._nonce, greet.proof):
            raise StoreRefused("wrong cluster secret")
        if greet.fingerprint != self._fingerprint:
            raise StoreRefused(f"KV fingerprint {greet.fingerprint!r}, this store holds {self._fingerprint!r}")
        return greet


def answer(challenge: bytes, secret: bytes, fingerprint: str, name: str) -> bytes:
    """The body of the frame that answers a challenge. Raises `StoreRefused` when the peer speaks another protocol."""
    try:
        received = _challenge.decode(challenge)
    except FrameInvalid as error:
        raise StoreRefused(f"bad challenge: {error}") from None
    if received.protocol != PROTOCOL_VERSION:
        raise StoreRefused(f"the store speaks protocol {received.protocol}, this side {PROTOCOL_VERSION}")
    return _encode(Greet(PROTOCOL_VERSION, fingerprint, name, prove(secret, received.nonce)))


def verdict(body: bytes) -> Welcome:
    """What the peer said to the greeting. Raises `StoreRefused`."""
    try:
        message = _verdict.decode(body)
    except FrameInvalid as error:
        raise StoreRefused(f"bad answer to the greeting: {error}") from None
    if isinstance(message, Refused):
        raise StoreRefused(message.reason)
    return message


def refusal(error: StoreRefused | FramingError) -> bytes:
    """The body of the frame that tells a peer why its connection closes."""
    return _encode(Refused(str(error)))
