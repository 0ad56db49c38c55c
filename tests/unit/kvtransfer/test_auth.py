"""Only who holds the secret can answer a nonce."""

import hashlib
import hmac

from kvtransfer.auth import NONCE_BYTES, is_proven, make_nonce, prove


def test_a_proof_is_hmac_sha256_of_the_nonce() -> None:
    assert prove(b"secret", b"nonce") == hmac.new(b"secret", b"nonce", hashlib.sha256).digest()


def test_a_proof_holds_for_its_secret_and_nonce_only() -> None:
    nonce = make_nonce()
    proof = prove(b"secret", nonce)
    assert is_proven(b"secret", nonce, proof)
    assert not is_proven(b"other", nonce, proof)
    assert not is_proven(b"secret", make_nonce(), proof)
    assert not is_proven(b"secret", nonce, b"")


def test_nonces_are_fresh() -> None:
    nonces = {make_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}
