"""Who may exchange blocks, and who may go on with whose answers."""

from dataclasses import fields, replace

from kvtransfer.fingerprint import KvFingerprint

ONE = KvFingerprint("model", "vllm 0.32.0", "bfloat16", 32, 30, 3, 8192, "x86 avx512", "sha256", "bfloat16 None []")


def test_everything_that_blocks_depend_on_is_in_the_digest_and_what_tokens_do_in_the_identity() -> None:
    others = {
        field.name: replace(ONE, **{field.name: 7 if field.type in (int, "int") else "other"}) for field in fields(ONE)
    }
    assert [name for name, other in others.items() if other.digest() == ONE.digest()] == []
    assert {name for name, other in others.items() if other.model_identity() != ONE.model_identity()} == {
        "model",
        "engine",
        "dtype",
        "computation",
    }
