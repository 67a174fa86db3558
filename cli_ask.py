"""`hobnob ask`: one question and its reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hobnob.cli_arguments import (
    Continue,
    Json,
    ModelName,
    Options,
    RoleName,
    System,
    Url,
    on_terminal,
    sampling,
    target_of,
    text_of,
    usage,
)
from hobnob.cli_roles import in_role

if TYPE_CHECKING:
    from hobnob.tui.question import Question

Words = Annotated[list[str] | None, typer.Argument(metavar="PROMPT", show_default=False)]
Place = Annotated[
    str | None, typer.Option("--conversation", metavar="ID|NAME", help="Go on with this one.")
]
After = Annotated[
    str | None, typer.Option("--from", metavar="MSG", help="Go on from this reply: a branch.")
]
Messages = Annotated[
    str | None,
    typer.Option("--messages", metavar="FILE", help="What was said before, as JSON; -: on stdin."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The new conversation's title.")
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="FILE|JSON|FIELDS",
        help="The reply as JSON of this schema, or with fields as in 'name, age int'.",
    ),
]
NoStream = Annotated[bool, typer.Option("--no-stream", help="Print the reply when it is complete.")]
FailOnTruncation = Annotated[
    bool, typer.Option("--fail-on-truncation", help="Exit 4 when the reply was cut.")
]
Resume = Annotated[
    str | None,
    typer.Option("--resume", metavar="RUN", help="Print what is not printed of a reply."),
]
Printed = Annotated[
    int | None,
    typer.Option("--printed", metavar="BYTES", min=0, help="With --resume: what you have."),
]
Events = Annotated[
    bool, typer.Option("--events", help="Print the reply's events, a JSON object a line.")
]
Code = Annotated[bool, typer.Option("--code", help="Print the contents of its code blocks only.")]
Render = Annotated[
    bool,
    typer.Option("--render", help="On a terminal: draw its Markdown, block after block."),
]
Count = Annotated[bool, typer.Option("--count", help="Send nothing: count the prompt's tokens.")]
Temporary = Annotated[
    bool, typer.Option("--temporary", help="Delete the conversation when it has been answered.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No notices on stderr.")]


def ask(
    words: Words = None,
    continue_last: Continue = False,
    conversation: Place = None,
    after: After = None,
    messages: Messages = None,
    name: Name = None,
    system: System = None,
    role: RoleName = None,
    model: ModelName = None,
    option: Options = None,
    schema: Schema = None,
    as_json: Json = False,
    no_stream: NoStream = False,
    fail_on_truncation: FailOnTruncation = False,
    resume: Resume = None,
    printed: Printed = None,
    events: Events = False,
    code: Code = False,
    render: Render = False,
    count: Count = False,
    temporary: Temporary = False,
    quiet: Quiet = False,
    plain: Annotated[bool, typer.Option("--plain", hidden=True)] = False,
    inline: Annotated[bool, typer.Option("--inline", hidden=True)] = False,
    url: Url = None,
    bare: Annotated[bool, typer.Option("--bare", hidden=True)] = False,
) -> int:
    """Ask one question and print the reply.

    Stdin, when it is not a terminal, comes before the PROMPT. Only the reply is on stdout.
    Ctrl+C cancels the reply; closing the terminal does not (`--resume`).
    """
    system, model, option = in_role(role, system, model, option)
    asked = bool(words) or any(one is not None for one in (resume, after, messages, name, schema))
    if bare and not asked and (on_terminal() or plain or inline):
        from hobnob.cli import open_chat  # here: that module has the commands, this one too

        given = url, continue_last, conversation, system, model, option
        return open_chat(*given, plain=plain, inline=inline, temporary=temporary)
    if plain or inline:
        raise usage("--plain and --inline open the chat, which takes no prompt.")
    from hobnob.tui.question import Question

    question = Question(
        system=text_of(system),
        options=sampling(option),
        schema=_schema(schema),
        model=model,
        continue_last=continue_last,
        conversation=text_of(conversation),
        after=after,
        messages=messages,
        name=text_of(name),
        resume=resume,
        printed=printed,
        as_json=as_json,
        events=events,
        code=code,
        render=render,
        stream=not no_stream,
        fail_on_truncation=fail_on_truncation,
        count=count,
        quiet=quiet,
        temporary=temporary,
    )
    return _put(question, words or [], url)


def _put(question: Question, words: list[str], url: str | None) -> int:
    problem = question.problem(words)
    if problem is not None:
        raise usage(problem)
    from hobnob.tui.plain import Notes

    target = target_of(url)
    if question.resume is None:
        from hobnob.tui import dialogue

        question = dialogue.complete(question, words, Notes(quiet=question.quiet).say)
    if question.count:
        from hobnob.tui import verbs

        return verbs.count(target, question)
    from hobnob.tui import ask as asking

    return asking.ask(target, question)


def _schema(given: str | None) -> dict[str, object] | None:
    if given is None:
        return None
    from hobnob.tui import schema

    return schema.read(text_of(given) or "")
