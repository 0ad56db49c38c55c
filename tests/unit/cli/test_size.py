"""`baton size` explains six steps, from figures or from a trace, and says what is missing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.cli.main import app

RATES = ["--rate", "20", "--prompt", "2000", "--output", "300"]


def asked(*arguments: str) -> tuple[int, str]:
    """The exit code, and all it says."""
    done = CliRunner().invoke(app, ["size", *arguments])
    return done.exit_code, done.output


def test_six_steps_and_the_sum_are_told() -> None:
    code, said = asked("--profile", "h100/llama-3-8b", *RATES)
    assert code == 0
    assert [line[:2] for line in said.splitlines() if line[:1].isdigit()] == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert "→ 3 prefill and 3 decode replicas, 6 in all, of h100/llama-3-8b" in said


def test_a_profile_of_no_known_hardware_does_without_its_weights() -> None:
    code, said = asked("--profile", "h100_8b", *RATES)
    assert code == 0
    assert "weights" not in said.split("2. Latency")[0].split("\n", 1)[1]


def test_a_described_workload_is_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        "phases:\n- duration_s: 120\n  arrivals: {rate_per_s: 4}\n  prompt: {mean_tokens: 4000}\n"
        "  output: {mean_tokens: 100}\n"
    )
    code, said = asked("--profile", "h100/llama-3-8b", "--trace", str(file))
    assert code == 0, said
    assert "in all, of" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "h100/llama-3-8b"], "give --rate, --prompt and --output, or --trace"),
        (["--profile", "h100/llama-3-8b", "--trace", "none.jsonl"], "none.jsonl: cannot be read"),
        (["--profile", "h100/llama-3-8b", "--slo", "itl=1ms", *RATES], "a request alone takes"),
    ],
)
def test_what_is_missing_or_cannot_be_kept_is_said(arguments: list[str], said: str) -> None:
    code, output = asked(*arguments)
    assert code == 2
    assert said in " ".join(output.replace("│", " ").split())
