"""A config file is read whole, changed by overrides, and every mistake in it is said in one line."""

from pathlib import Path

import pytest
import yaml

from configs.errors import ConfigError
from configs.load import load
from configs.overrides import parse, with_model
from configs.schema import SimulatedEngineConfig, VllmEngineConfig
from configs.serve_file import AUTOSCALING_POLICY

PRESETS = Path(__file__).parents[3] / "configs"
HEAD = "applications:\n- import_path: cluster.app:build\n  args:\n"


def mistakes(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    """What `load` says of a file with this text, without the file's name."""
    file = tmp_path / "f.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, [parse(override) for override in overrides])
    return str(caught.value).replace(str(file), "FILE").splitlines()


def test_the_laptop_preset_is_one_prefill_and_one_decode_vllm_worker() -> None:
    deployment = load(PRESETS / "laptop.yaml")
    config = deployment.config
    assert (deployment.name, deployment.http.host, deployment.http.port) == ("baton", "127.0.0.1", 8000)
    assert (config.model.path, config.prefill.replicas, config.decode.replicas) == ("smollm2", 1, 1)
    assert isinstance(config.prefill.engine, VllmEngineConfig)
    assert config.prefill == config.decode
    assert config.store.bytes == 1024**3


def test_the_simulated_preset_is_eight_and_eight() -> None:
    config = load(PRESETS / "simulated.yaml").config
    assert (config.model.path, config.prefill.replicas, config.decode.replicas) == ("tiny", 8, 8)
    assert isinstance(config.decode.engine, SimulatedEngineConfig)


def test_rays_own_keys_are_let_through(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "proxy_location: EveryNode\nhttp_options: {port: 81, request_timeout_s: 3}\n" + HEAD + "    model: {path: m}\n"
    )
    assert load(file).http.port == 81


def test_an_unknown_key_names_its_path_the_nearest_key_and_all_others(tmp_path: Path) -> None:
    assert mistakes(tmp_path, HEAD + "    model: {path: m}\n    store: {byte: 3}\n") == [
        "FILE: applications[0].args.store.byte: unknown key; did you mean 'bytes'? allowed: bytes, max_frame_bytes, "
        "max_handoffs, handoff_ttl_s, eviction, high_watermark, low_watermark, tenant_weights, disk, streams, "
        "transport, idle_exit_s"
    ]


def test_a_key_of_the_other_engine_is_unknown_to_this_one(tmp_path: Path) -> None:
    text = HEAD + "    model: {path: m}\n    decode: {engine: {kind: vllm, speed: 2}}\n"
    assert mistakes(tmp_path, text) == [
        "FILE: applications[0].args.decode.engine.speed: unknown key; allowed: kind, args, env, replay_tokens"
    ]


def test_a_value_out_of_bounds_says_what_is_allowed(tmp_path: Path) -> None:
    text = HEAD + "    model: {path: m}\n    prefill: {replicas: -1}\n    timeouts: {request_s: soon}\n"
    assert mistakes(tmp_path, text) == [
        "FILE: applications[0].args.prefill.replicas: given -1; allowed: greater than or equal to 0",
        "FILE: applications[0].args.timeouts.request_s: given 'soon'; allowed: a valid number, unable to parse string "
        "as a number",
    ]


def test_what_is_infinite_or_no_size_is_refused_by_name(tmp_path: Path) -> None:
    text = (
        "    model: {path: m}\n"
        "    store: {bytes: 0, max_frame_bytes: 64KiB}\n"
        "    router: {index_bytes: -5, decode_weight: .inf, rates: {prefill_token_s: .inf, host_latency_s: .nan}}\n"
        "    gateway: {max_body_bytes: 5 elephants}\n"
    )
    args = "FILE: applications[0].args."
    size = "a number of bytes, e.g. 512MiB"
    assert sorted(mistakes(tmp_path, HEAD + text)) == [
        f"{args}gateway.max_body_bytes: given '5 elephants'; allowed: {size}",
        f"{args}router.decode_weight: given inf; allowed: a finite number",
        f"{args}router.index_bytes: given -5; allowed: {size}",
        f"{args}router.rates.host_latency_s: given nan; allowed: a finite number",
        f"{args}router.rates.prefill_token_s: given inf; allowed: a finite number",
        f"{args}store.bytes: given 0; allowed: greater than 0",
        f"{args}store.max_frame_bytes: given '64KiB'; allowed: greater than or equal to 1048576",
    ]


def test_an_unknown_engine_kind_lists_the_kinds(tmp_path: Path) -> None:
    text = HEAD + "    model: {path: m}\n    decode: {engine: {kind: cuda}}\n"
    assert mistakes(tmp_path, text) == [
        "FILE: applications[0].args.decode.engine.kind: given 'cuda'; allowed: 'vllm', 'simulated'"
    ]


def test_a_missing_model_is_required(tmp_path: Path) -> None:
    assert mistakes(tmp_path, HEAD + "    {}\n") == ["FILE: applications[0].args.model: is required"]


def test_a_secret_of_the_wrong_type_is_not_repeated(tmp_path: Path) -> None:
    text = HEAD + "    model: {path: m}\n    security: {cluster_secret: [hunter2]}\n"
    assert mistakes(tmp_path, text) == [
        "FILE: applications[0].args.security.cluster_secret: given something that is not shown; allowed: a valid string"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2\n", "FILE:2: is not YAML: expected ',' or ']', but got ':'"),
        ("", "FILE: given None; allowed: a mapping of keys to values"),
        ("applications: []\n", "FILE: applications: given []; allowed: at least 1"),
        ("app: 1\n", "FILE: applications: is required"),
        (
            "applications:\n- import_path: other:app\n",
            "FILE: applications[0].import_path: given 'other:app'; allowed: 'cluster.app:build', once",
        ),
        (
            "http_options: {port: 99999}\n" + HEAD,
            "FILE: http_options.port: given 99999; allowed: less than or equal to 65535",
        ),
    ],
)
def test_a_file_that_is_no_serve_config_says_why(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistakes(tmp_path, text)


def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml")


def test_overrides_change_values_and_make_sections() -> None:
    sets = [parse("decode.replicas=3"), parse("decode.engine.args.max_num_seqs=4"), parse("security.listen_host=::1")]
    config = load(PRESETS / "laptop.yaml", sets).config
    assert isinstance(config.decode.engine, VllmEngineConfig)
    assert (config.decode.replicas, config.decode.engine.args["max_num_seqs"]) == (3, 4)
    assert (config.prefill.replicas, config.security.listen_host) == (1, "::1")
    assert isinstance(config.prefill.engine, VllmEngineConfig)
    assert config.prefill.engine.args["max_num_seqs"] == 32


def test_another_model_goes_under_its_own_name() -> None:
    model = load(PRESETS / "simulated.yaml", with_model("/m/llama")).config.model
    assert (model.path, model.served_name) == ("/m/llama", None)


def test_a_mistake_in_an_override_is_blamed_on_it(tmp_path: Path) -> None:
    text = HEAD + "    model: {path: m}\n"
    assert mistakes(tmp_path, text, "decode.replica=2") == [
        "--set decode.replica=2: decode.replica: unknown key; did you mean 'replicas'? allowed: replicas, "
        "min_replicas, max_replicas, engine, num_cpus, num_gpus, resources, label_selector, cores"
    ]
    assert mistakes(tmp_path, text, "model.path.x=1") == [
        "--set model.path.x=1: path: is 'm', which has no keys inside"
    ]


@pytest.mark.parametrize("text", ["replicas", "=3", "a..b=1"])
def test_an_override_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: key\.path=value"):
        parse(text)


def test_an_engine_may_not_stand_still_for_longer_than_the_most_it_may(tmp_path: Path) -> None:
    (said,) = mistakes(tmp_path, HEAD + "    model: {path: m}\n    health: {stall_s: 900}\n")
    assert said.startswith("FILE: applications[0].args.health: ")
    assert said.endswith("stall_s 900 is above stall_most_s 600")


def test_a_pool_scales_within_its_bounds_and_is_fixed_without(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(HEAD + "    model: {path: m}\n    decode: {replicas: 2, max_replicas: 4}\n")
    config = load(file).config
    assert (config.scales, config.decode.least, config.decode.most) == (True, 2, 4)
    assert (config.prefill.least, config.prefill.most) == (1, 1)
    assert not load(PRESETS / "laptop.yaml").config.scales


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("{replicas: 5, max_replicas: 4}", "replicas 5 is not from min_replicas 5 to max_replicas 4"),
        ("{replicas: 1, min_replicas: 2}", "replicas 1 is not from min_replicas 2 to max_replicas 1"),
        ("{replicas: 0, max_replicas: 4}", "max_replicas is for a pool that has replicas to begin with; replicas is 0"),
    ],
)
def test_bounds_that_replicas_are_not_in_are_a_mistake(tmp_path: Path, pool: str, said: str) -> None:
    (mistake,) = mistakes(tmp_path, HEAD + f"    model: {{path: m}}\n    decode: {pool}\n")
    assert said in mistake


def test_a_deployment_is_written_as_a_serve_file_that_says_the_same(tmp_path: Path) -> None:
    text = HEAD + "    model: {path: m}\n    decode: {max_replicas: 4}\n    security: {cluster_secret: hunter2}\n"
    file, again = tmp_path / "f.yaml", tmp_path / "again.yaml"
    file.write_text(text)
    deployment = load(file)
    again.write_text(yaml.safe_dump({"applications": [deployment.application()]}))
    assert load(again).config == deployment.config
    assert deployment.application()["autoscaling_policy"] == AUTOSCALING_POLICY
    assert "autoscaling_policy" not in load(PRESETS / "laptop.yaml").application()
