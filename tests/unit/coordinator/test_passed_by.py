"""Whom a request passes by."""

from cluster.coordinator.passed_by import PassedBy
from routing.fleet import Fleet, Replica, Role


def fleet(ready: bool = True, **models: str) -> Fleet:
    return Fleet(
        {
            name: Replica(name, Role.DECODE, "n", "f", 16, 4096, ready=ready, model_identity=model)
            for name, model in models.items()
        }
    )


def test_who_failed_it_is_passed_by_until_it_was_away() -> None:
    passed_by, now = PassedBy(), fleet(a="m", b="m")
    passed_by.leave("a")
    passed_by.forgive_who_was_away(now)
    assert passed_by.now(now) == {"a"}
    passed_by.forgive_who_was_away(fleet(ready=False, a="m", b="m"))
    assert passed_by.now(now) == frozenset()


def test_another_model_is_passed_by_once_the_client_has_tokens_of_one() -> None:
    passed_by, now = PassedBy(), fleet(a="m", b="m", c="m2")
    passed_by.took("c", now)
    passed_by.took("a", now)
    assert passed_by.now(now) == frozenset()
    passed_by.began()
    assert passed_by.now(now) == passed_by.strangers(now) == {"c"}
    passed_by.leave("b")
    assert passed_by.now(now) == {"b", "c"}
