"""The diagram in the documentation is the table's."""

from pathlib import Path

from cluster.coordinator.diagram import mermaid
from cluster.coordinator.lifecycle import TRANSITIONS

PAGE = Path(__file__).parents[3] / "docs" / "lifecycle.md"


def test_the_page_shows_the_diagram_drawn_from_the_table() -> None:
    drawn = PAGE.read_text().split("```mermaid\n")[1].split("```")[0]
    assert drawn == mermaid(), "run `python -m cluster.coordinator.diagram` and paste its output into docs/lifecycle.md"


def test_every_transition_is_drawn() -> None:
    lines = mermaid().splitlines()
    for source, exits in TRANSITIONS.items():
        for event, target in exits.items():
            arrow = f"    {source.name} --> {target.name}: "
            labels = [line.removeprefix(arrow).split(", ") for line in lines if line.startswith(arrow)]
            assert len(labels) == 1
            assert event.value in labels[0]
