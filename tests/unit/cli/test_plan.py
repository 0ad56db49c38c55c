"""`baton plan`: its words as values, its file, its picture, and the command on a described workload."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
import yaml
from typer.testing import CliRunner

from cluster.cli.main import app
from cluster.cli.plan_options import bytes_of, costs_of, slo_of
from cluster.cli.plan_plot import draw
from cluster.cli.plan_report import deployment
from cluster.planning.outcome import Slo
from cluster.planning.planner.question import Costs
from cluster.planning.planner.survey import LOADS, ratios
from cluster.planning.planner.topology import Topology
from cluster.planning.planner.trial import Ask, Trial, Window
from configs.load import load

WORKLOAD = """
phases:
- duration_s: 20
  arrivals: {rate_per_s: 4}
  prompt: {mean_tokens: 4000, variation: 0.3}
  output: {mean_tokens: 100, variation: 0.3}
"""
LAPTOP = Path(__file__).parents[3] / "configs" / "laptop.yaml"


def test_targets_and_prices_are_read() -> None:
    assert slo_of("ttft=2s,itl=25ms") == Slo(2.0, 0.025)
    assert slo_of("itl=0.05s") == Slo(itl_s=0.05)
    assert costs_of(None) == Costs()
    assert costs_of("prefill=4,decode=2.5") == Costs(4.0, 2.5)
    assert costs_of("3") == Costs(3.0, 3.0)
    assert bytes_of("--host-memory", "2GiB") == 2 << 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft=2", "--slo: ttft: given '2'; allowed: a time with its unit"),
        ("tft=2s", "--slo: given 'tft=2s'; allowed: ttft=…, itl=…"),
        ("itl=0ms", "--slo: itl: given '0ms'"),
    ],
)
def test_a_wrong_target_is_named(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        slo_of(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["prefill=1", "prefill=1,decode=0", "cheap", "prefill=1,decode=x"])
def test_a_wrong_price_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--cost"):
        costs_of(text)


def test_the_file_of_a_plan_can_be_deployed(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(deployment(Topology(6, 2), "h100x4/llama-3-70b", Slo(2, 0.025), "some/model"))
    config = load(file).config
    assert (config.prefill.replicas, config.decode.replicas, config.prefill.num_gpus) == (6, 2, 4)
    assert (config.router.profile, config.router.itl_target_s) == ("h100x4/llama-3-70b", 0.025)


def test_a_file_of_ones_own_keeps_all_but_the_pools_sizes(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(deployment(Topology(0, 3), "laptop_cpu", Slo(), "", yaml.safe_load(LAPTOP.read_text())))
    found, before = load(file).config, load(LAPTOP).config
    assert (found.prefill.replicas, found.decode.replicas) == (0, 3)
    assert (found.decode.engine, found.store, found.gateway) == (before.decode.engine, before.store, before.gateway)


def test_the_picture_names_axes_units_loads_the_choice_and_its_neighbours(tmp_path: Path) -> None:
    chosen, window = Topology(4, 4), (Window(0, 100),)
    trials = [
        Trial(Ask(each, window, factor), 90, 2.0, 0.1, 1.0, 0.01, 0.02, 0.1, 0.9)
        for factor in LOADS
        for each in ratios(chosen)
    ]
    file = tmp_path / "plan.svg"
    draw(trials, chosen, 1.0, Slo(), "a trace", file)
    said = " ".join(
        comment.text or "" for comment in ElementTree.parse(file, _with_comments()).iter(ElementTree.Comment)
    )
    for text in ("requests/s", "chosen: 4P:4D", "3P:5D", "5P:3D", "1.5 × the speed", "agg.", "for decode", "a trace"):
        assert text in said


def _with_comments() -> ElementTree.XMLParser:
    """matplotlib draws letters as paths and keeps the text in a comment."""
    return ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))


def test_a_plan_is_a_table_and_a_file(tmp_path: Path) -> None:
    trace, out = tmp_path / "w.yaml", tmp_path / "deploy.yaml"
    trace.write_text(WORKLOAD)
    given = ["plan", "--trace", str(trace), "--profile", "h100/llama-3-8b", "--replicas", "3", "--out", str(out)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "→" in done.output
    assert "of requests are good" in done.output
    assert load(out).config.prefill.replicas + load(out).config.decode.replicas == 3


def test_a_trace_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "--trace", str(tmp_path / "no.csv"), "--profile", "h100/llama-3-8b"])
    assert done.exit_code == 2
    assert "cannot be read" in done.output
