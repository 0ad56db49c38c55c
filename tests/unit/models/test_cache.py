"""A folder in the model cache is whole, or it is made again."""

from pathlib import Path

import pytest

from cluster.models import cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_CACHE", str(tmp_path / "cache"))


class Maker:
    """Writes one file and counts how often it was asked to."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "config.json").write_text(self.text)


def test_a_model_is_made_once() -> None:
    maker = Maker("a")
    first, second = cache.obtain("m", maker), cache.obtain("m", maker)
    assert (first, maker.calls) == (second, 1)
    assert (first / "config.json").read_text() == "a"


def test_a_changed_file_is_noticed_and_the_model_made_again() -> None:
    maker = Maker("a")
    folder = cache.obtain("m", maker)
    (folder / "config.json").write_text("b")
    assert cache.cached("m") is None
    assert (cache.obtain("m", maker) / "config.json").read_text() == "a"


def test_a_maker_that_fails_leaves_nothing_and_does_not_harm_the_old_one() -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        cache.obtain("m", fails)
    assert cache.cached("m") is None
    assert [path.name for path in cache.cache_folder().iterdir()] == [".lock-m"]


def test_what_a_dead_maker_left_is_removed() -> None:
    left = cache.cache_folder() / ".making-m-dead"
    left.mkdir(parents=True)
    cache.obtain("m", Maker("a"))
    assert not left.exists()
