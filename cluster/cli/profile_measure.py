"""`baton profile CONFIG`: starts an engine, measures it, writes its profile and shows how well that fits."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

from cluster.cli.progress import rounds_shown
from cluster.errors import BatonError
from cluster.profiling.bench import Bench, NotMeasured
from cluster.profiling.fit import Fit
from cluster.profiling.rig import CannotProfile, Pool, Rig, rig
from cluster.profiling.schedule import context_tokens, schedule
from cluster.profiling.session import Pace, Report, fitted, measure
from configs.load import Deployment
from configs.measured import MeasuredConfig
from configs.profile_file import ProfileConfig, write_profile
from kvtransfer.errors import KvTransferError

GRACE_S = 60.0
"""What measuring may take beyond its deadline, to end the point that it is at."""


def run(deployment: Deployment, pool: Pool, pace: Pace, output: Path) -> None:
    """Measure and write. Raises `CannotProfile`."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # what the engine's processes say of each other when they end
    with rounds_shown("profile") as report:
        report.says(f"starting the {pool} engine of {deployment.config.model.path}")
        try:
            profile, fit = asyncio.run(_profile(deployment, pool, pace, report.at))
        except asyncio.CancelledError:
            sys.exit(128 + signal.SIGTERM)  # Ctrl-C comes out of `run` as what it is
    output.write_text(write_profile(profile), encoding="utf-8")
    print(table(fit, profile.measured))
    print(f"\n{output}: for router.profile in a Serve file, and for baton plan --profile and baton size --profile")


async def _profile(deployment: Deployment, pool: Pool, pace: Pace, report: Report) -> tuple[ProfileConfig, Fit]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with rig(deployment.config, pool) as it:
            measured = await _measure(it, pace, report)
    except TimeoutError as error:
        raise CannotProfile(f"--minutes: the engine answered nothing for {GRACE_S:.0f} s after its time") from error
    except (BatonError, NotMeasured, KvTransferError) as error:
        raise CannotProfile(f"{pool}.engine: {error}") from error
    fit = fitted(measured, it.limits, it.kv_bytes_per_token)
    return _as_profile(deployment, pool, it, measured, fit), fit


async def _measure(it: Rig, pace: Pace, report: Report) -> MeasuredConfig:
    longest = context_tokens(schedule(it.limits, pace.quick))
    bench = Bench(it.engine, asyncio.get_running_loop().time, random.Random(), longest, it.stores)
    async with asyncio.timeout(pace.deadline_s + GRACE_S):
        return await measure(bench, it.limits, pace, report)


def _as_profile(deployment: Deployment, pool: Pool, it: Rig, measured: MeasuredConfig, fit: Fit) -> ProfileConfig:
    about = (
        f"{deployment.model_name} on the {it.kind} engine of the {pool} pool in {Path(deployment.source).name}, "
        f"measured by baton profile: medians of {measured.rounds} rounds. remote_* are between two stores of one "
        "machine: better than your network is."
    )
    tokens = it.engine.kv_blocks * it.engine.block_size_tokens
    return ProfileConfig.model_validate(
        {"about": about, **fit.rates, "kv_tokens": tokens, "start_s": round(it.start_s, 1), "measured": measured}
    )


def table(fit: Fit, measured: MeasuredConfig) -> str:
    """Every point as measured and as the rates have it."""
    lines = [f"medians of {measured.rounds} rounds", f"{'':36}{'measured ms':>13}{'fitted ms':>12}{'error':>9}"]
    lines += [
        f"{point.about:36}{1e3 * point.seconds:13,.1f}{1e3 * point.fitted_s:12,.1f}{point.error:+9.1%}"
        for point in fit.points
    ]
    errors = sorted(abs(point.error) for point in fit.points)
    lines.append(f"median error {errors[len(errors) // 2]:.1%}, largest {errors[-1]:.1%}")
    return "\n".join(lines)
