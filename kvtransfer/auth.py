"""Proof of the cluster secret, without sending it: HMAC-SHA256 over a fresh nonce of the accepting side."""

import hashlib
import hmac
import secrets

NONCE_BYTES = 32


def make_nonce() -> bytes:
    """Fresh random bytes for one challenge."""
    return secrets.token_bytes(NONCE_BYTES)


def prove(secret: bytes, nonce: bytes) -> bytes:
    """What only a holder of `secret` can answer to `nonce`: 32 bytes."""
    return hmac.digest(secret, nonce, hashlib.sha256)


def is_proven(secret: bytes, nonce: bytes, proof: bytes) -> bool:
    """Whether `proof` answers `nonce`. Takes the same time wherever it differs."""
    return hmac.compare_digest(prove(secret, nonce), proof)
