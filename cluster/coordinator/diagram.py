"""The lifecycle's diagram, drawn from its table: `python -m cluster.coordinator.diagram` prints it in mermaid."""

from cluster.coordinator.lifecycle import TERMINAL, TRANSITIONS, Event, State


def mermaid() -> str:
    """A `stateDiagram-v2`: one arrow for each pair of states, labelled with its events."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.ROUTING.name}"]
    for (source, target), events in _arrows().items():
        lines.append(f"    {source.name} --> {target.name}: {', '.join(e.value for e in events)}")
    lines += [f"    {state.name} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines) + "\n"


def _arrows() -> dict[tuple[State, State], list[Event]]:
    arrows: dict[tuple[State, State], list[Event]] = {}
    for source, exits in TRANSITIONS.items():
        for event, target in exits.items():
            arrows.setdefault((source, target), []).append(event)
    return arrows


if __name__ == "__main__":
    print(mermaid(), end="")
