"""The facts of this machine are true."""

import socket
from pathlib import Path

from cluster.doctor.facts import Question
from cluster.doctor.gather import gather
from tests.support.serving import free_port


def test_this_machine_runs_what_is_installed_and_its_port_is_free() -> None:
    facts = gather(Question("tiny", "127.0.0.1", free_port()))
    assert facts.python.startswith("3.11.")
    assert {"ray", "vllm", "numpy"} <= set(facts.versions)
    assert facts.shared_memory_bytes > 0
    assert facts.open_files > 0
    assert not facts.port_taken
    assert (facts.model_error, facts.disk_error) == ("", "")


def test_a_listener_is_noticed_on_every_interface() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert gather(Question("tiny", "0.0.0.0", listener.getsockname()[1])).port_taken


def test_a_folder_that_cannot_be_a_model_or_a_disk_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    facts = gather(Question(str(tmp_path), "127.0.0.1", free_port(), disk=str(file / "below")))
    assert "has no config.json" in facts.model_error
    assert "Not a directory" in facts.disk_error


def test_a_disk_folder_is_made(tmp_path: Path) -> None:
    facts = gather(Question("tiny", "127.0.0.1", free_port(), disk=str(tmp_path / "new")))
    assert facts.disk_error == ""
    assert list((tmp_path / "new").iterdir()) == []
