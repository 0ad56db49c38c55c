"""Compiled functions."""

import pytest
from numba.core.caching import CacheImpl

from routing.compiled import compiled


def double(number: int) -> int:
    return 2 * number


def test_without_a_folder_to_cache_in_a_function_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled(double)(21) == 42
