"""`baton profile`: how fast replicas are, by roofline or as it comes with Baton."""

from typing import Annotated

import typer

app = typer.Typer(help="List and show profiles: how fast a replica is.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="as `baton profile list` names it, or a file", metavar="NAME")]


@app.command("list")
def list_profiles() -> None:
    """Show all profiles that need no measuring. `h100x2/MODEL` shares a model between two devices."""
    from configs.hardware import ACCELERATORS
    from configs.model_shapes import MODELS
    from configs.profile_names import SHIPPED, RooflineName
    from configs.profiles import named
    from configs.roofline import least_count

    names = [RooflineName(device, least_count(device, model), model) for model in MODELS for device in ACCELERATORS]
    print(f"{'':28}{'prefill':>12}{'decode step':>14}{'context':>16}{'KV cache':>14}")
    print(f"{'name':28}{'tokens/s':>12}{'ms':>14}{'ms/1k tokens':>16}{'tokens':>14}")
    for name in (*SHIPPED, *map(str, names)):
        profile = named(name)
        rates = profile.all_rates()
        print(
            f"{name:28}{1 / rates['prefill_token_s']:12,.0f}{1e3 * rates['decode_step_s']:14.1f}"
            f"{1e6 * rates['decode_context_token_s']:16.3f}{profile.kv_tokens:14,}"
        )


@app.command()
def show(name: Name) -> None:
    """Print a profile as a file that `router.profile` and `baton plan --profile` take, once it is saved and edited."""
    from configs.profile_file import write_profile
    from configs.profiles import named

    print(write_profile(named(name)), end="")
