"""The six steps of sizing as text: the question, the formula with its numbers, the result, and where it is from."""

from cluster.planning.outcome import Slo
from cluster.planning.planner.sizing import KV_HEADROOM, SIGNAL_SHARE, PeakLoad, Sizing
from configs.hardware import ACCELERATORS
from configs.model_shapes import MODELS
from configs.profile_file import ProfileConfig
from configs.profile_names import roofline_name

GB = 1e9


def explain(name: str, profile: ProfileConfig, load: PeakLoad, slo: Slo, found: Sizing) -> str:
    """All steps, and the sum."""
    steps = (
        ("Memory: the weights, and KV for what runs at once", _memory(name, profile, load, found)),
        ("Latency: what is promised", _latency(slo)),
        ("Peak: how many requests are in flight", _peak(load, found)),
        ("Capacity: what one replica takes inside the targets", _capacity(load, slo, profile, found)),
        ("Division, with headroom for a failure", _division(load, found)),
        ("Signal: what to scale on", _signal(found, slo, profile)),
    )
    parts = [f"{number}. {title}\n{_indented(lines)}" for number, (title, lines) in enumerate(steps, 1)]
    total = found.prefill + found.decode + 2 * found.spare
    parts.append(
        f"→ {found.prefill + found.spare} prefill and {found.decode + found.spare} decode replicas, {total} in all, of "
        f"{name}.\n  `baton plan --replicas {total}` simulates the ratio on a trace; queues and bursts are not in here."
    )
    return "\n\n".join(parts)


def _indented(lines: list[str]) -> str:
    return "\n".join(f"   {line}" for line in lines)


def _memory(name: str, profile: ProfileConfig, load: PeakLoad, found: Sizing) -> list[str]:
    each = profile.all_rates()["kv_bytes_per_token"]
    lines = []
    if (parts := roofline_name(name)) is not None:
        shape, device = MODELS[parts.model], ACCELERATORS[parts.accelerator]
        lines += [
            f"weights = parameters × 2 bytes = {shape.parameters / 1e9:.4g} G × 2 = {shape.weight_bytes / GB:.4g} GB "
            f"of {parts.count} × {device.memory_bytes / GB:g} GB",
            "KV of a token = 2 × layers × KV heads × head dimension × 2 bytes = "
            f"2 × {shape.layers} × {shape.kv_heads} × {shape.head_dim} × 2 = {shape.kv_bytes_per_token:,} bytes",
        ]
    lines += [
        "KV at the peak (step 3) = requests in flight × (prompt + output / 2) × KV of a token = "
        f"{found.in_flight:.1f} × "
        f"{load.context_tokens:,.0f} × {each:,.0f} = {found.kv_bytes / GB:.4g} GB",
        f"one replica has room for {profile.kv_tokens:,} tokens = {profile.kv_tokens * each / GB:.4g} GB",
        f"source: {profile.about.strip()}",
    ]
    return lines


def _latency(slo: Slo) -> list[str]:
    return [
        f"first token within {slo.ttft_s:g} s: prefill's queue, its computing, and a decode step",
        f"then a token every {1000 * slo.itl_s:g} ms: the time of a decode step",
        "source: yours (--slo); people read 5 to 15 tokens a second",
    ]


def _peak(load: PeakLoad, found: Sizing) -> list[str]:
    return [
        f"in flight = requests/s × output tokens × time of a step = {load.requests_per_s:.3g} × "
        f"{load.output_tokens:,.0f} × {1000 * found.step_s:.1f} ms = {found.in_flight:.1f}",
        "source: J. Little's law (1961); the time of a step is that of a full batch (step 4)",
    ]


def _capacity(load: PeakLoad, slo: Slo, profile: ProfileConfig, found: Sizing) -> list[str]:
    rates = profile.all_rates()
    return [
        "decode: the largest batch b with fixed + b × (request + context × context token) ≤ ITL target and "
        f"b × context ≤ {KV_HEADROOM:g} × KV cache:",
        f"   b = {found.batch}: {1000 * rates['decode_step_s']:.2f} + {found.batch} × "
        f"({1000 * rates['decode_request_s']:.4f} + {load.context_tokens:,.0f} × "
        f"{1000 * rates['decode_context_token_s']:.2e}) = {1000 * found.step_s:.1f} ms of {1000 * slo.itl_s:g}; "
        f"{found.batch * load.context_tokens:,.0f} tokens of {profile.kv_tokens:,}",
        f"prefill: a prompt of {load.prompt_tokens:,.0f} tokens, of which {load.computed_tokens:,} are computed, takes "
        f"{found.prefill_s:.3f} s;",
        f"   waiting + computing ≤ TTFT target while the replica is busy at most {found.busy:.0%} of the time, so "
        f"{found.busy:.2f} / {found.prefill_s:.3f} s = {found.prompts_per_s:.2f} prompts/s",
        "source: the profile's rates; waiting in an M/D/1 queue by Pollaczek and Khinchine (1930, 1932)",
    ]


def _division(load: PeakLoad, found: Sizing) -> list[str]:
    return [
        f"prefill = ⌈{load.requests_per_s:.3g} / {found.prompts_per_s:.2f}⌉ + {found.spare} = "
        f"{found.prefill} + {found.spare}",
        f"decode = ⌈{found.in_flight:.1f} / {found.batch}⌉ + {found.spare} = {found.decode} + {found.spare}",
        f"source: the targets are kept at the peak with {found.spare} of each pool lost (--spare)",
    ]


def _signal(found: Sizing, slo: Slo, profile: ProfileConfig) -> list[str]:
    return [
        f"decode: more replicas when KV use stays above {found.scale_at_kv_use:.0%} "
        f"({SIGNAL_SHARE:g} × batch × context / KV cache)",
        f"prefill: more replicas when prompts wait longer than {found.scale_at_queue_s:.2f} s "
        f"({SIGNAL_SHARE:g} × what the TTFT target of {slo.ttft_s:g} s leaves)",
        f"both early: a replica takes {profile.start_s:.0f} s to start. Not GPU utilisation: a decode step reads all "
        "weights for one request as for fifty",
        "source: metrics baton_worker_kv_usage and the split of TTFT at a gateway's /metrics",
    ]
