"""`baton route explain`: how a running deployment would place a prompt, and why."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="See how requests are placed.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="the Serve config file that is being served", metavar="CONFIG")]
Prompt = Annotated[str | None, typer.Argument(help="the prompt's text", metavar="[PROMPT]")]
PromptFile = Annotated[Path | None, typer.Option(help="a file with the prompt's text", exists=True, dir_okay=False)]
TokensFile = Annotated[Path | None, typer.Option(help="token ids: a JSON list, or words", exists=True, dir_okay=False)]
MaxTokens = Annotated[int, typer.Option(help="the most tokens the answer may have", min=1)]
Salt = Annotated[str | None, typer.Option(help="the request's cache salt")]
Model = Annotated[str | None, typer.Option(help="the model, if it was served with --model")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="try another value of a key", metavar="KEY.PATH=VALUE")]
Address = Annotated[str | None, typer.Option(help="the Ray cluster; default: the `baton serve` of this machine")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]


@app.callback()
def route() -> None:
    """See how requests are placed."""


@app.command()
def explain(
    file: File,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    tokens_file: TokensFile = None,
    max_tokens: MaxTokens = 256,
    salt: Salt = None,
    model: Model = None,
    changes: Sets = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Show every placement the router would consider for a prompt now, the best first, with its predicted parts.

    Nothing is sent to an engine. Seen is what workers report; what gateways have learnt about rates is theirs alone.
    """
    from cluster.cli.explain import Question, as_table, ask, to_json
    from cluster.models.fetch import resolve
    from cluster.runtime.ticket import Ticket, find_ticket
    from configs.load import load
    from configs.overrides import parse, with_model

    given = [each for each in (prompt, prompt_file, tokens_file) if each is not None]
    if len(given) != 1:
        raise typer.BadParameter("give one of PROMPT, --prompt-file and --tokens-file")
    overrides = [*(with_model(model) if model else []), *(parse(change) for change in changes or [])]
    deployment = load(file, overrides)
    path = resolve(deployment.config.model.path)
    text = prompt_file.read_text(encoding="utf-8") if prompt_file is not None else prompt
    question = Question(path, text, tokens_file, max_tokens, salt)
    question.token_ids()  # what is wrong with it is said before anything is joined
    (Ticket(address) if address is not None else find_ticket()).join()
    answer = ask(deployment, question)
    print(to_json(answer) if as_json else as_table(answer))
