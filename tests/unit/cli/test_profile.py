"""`baton profile CONFIG` as its user meets it: what it takes, and what it says when that is wrong."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.cli.main import app
from cluster.cli.profile_measure import table
from cluster.profiling.fit import Fit, FittedPoint
from configs.errors import ConfigError
from configs.measured import MeasuredConfig

CONFIG = str(Path(__file__).parents[3] / "configs" / "simulated.yaml")


def test_a_file_is_measured_and_other_words_are_commands() -> None:
    asked = CliRunner().invoke(app, ["profile", CONFIG, "-o", "/nowhere/mine.yaml"])
    assert asked.exit_code == 2
    assert "-o: given '/nowhere/mine.yaml'; allowed: a .yaml file in a folder that exists" in " ".join(
        asked.output.replace("│", " ").split()
    )
    assert CliRunner().invoke(app, ["profile", "show", "laptop_cpu"]).stdout.startswith("about: ")


def test_a_configuration_that_is_wrong_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        CliRunner().invoke(
            app, ["profile", str(tmp_path / "none.yaml"), "-o", str(tmp_path / "p.yaml")], catch_exceptions=False
        )


def test_each_point_is_shown_beside_what_the_rates_make_of_it() -> None:
    points = [FittedPoint("prefill of 1 × 256 tokens", 0.2, 0.21), FittedPoint("load of 64 tokens", 0.004, 0.003)]
    assert table(Fit({}, points), MeasuredConfig(rounds=3)).splitlines() == [
        "medians of 3 rounds",
        "                                      measured ms   fitted ms    error",
        "prefill of 1 × 256 tokens                   200.0       210.0    +5.0%",
        "load of 64 tokens                             4.0         3.0   -25.0%",
        "median error 25.0%, largest 25.0%",
    ]
