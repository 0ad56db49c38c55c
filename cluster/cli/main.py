"""The entry of the `baton` command: its subcommands, and how errors and exit codes come out.

Exit codes: 0 done, 1 something failed, 2 the user can mend what was given, 128+n ended by signal n.
"""

import sys

import typer

from cluster.cli import config, doctor, drain, model, plan, pools, profile, route, serve, size, status, store

app = typer.Typer(
    name="baton",
    help="LLM serving with prefill and decode on separate vLLM pools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("plan")(plan.plan)
app.command("size")(size.size)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.command("drain")(drain.drain)
app.command("doctor")(doctor.doctor)
app.add_typer(model.app, name="model")
app.add_typer(config.app, name="config")
app.add_typer(profile.app, name="profile")
app.add_typer(pools.app, name="pools")
app.add_typer(route.app, name="route")
app.add_typer(store.app, name="store")


def main() -> None:
    """Run the command line and exit."""
    from cluster.models.errors import ModelUnavailable
    from cluster.runtime.folders import UnsafeFolder
    from cluster.runtime.ports import PortTaken
    from cluster.runtime.ticket import NothingRuns
    from configs.errors import ConfigError

    try:
        app()
    except (ConfigError, ModelUnavailable, NothingRuns, PortTaken, UnsafeFolder) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
