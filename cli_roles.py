"""`hobnob roles`: the user's roles; and what `--role` means."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hobnob.cli_arguments import Json, group, usage
from hobnob.exits import Exit

roles = group("Your roles: system prompts in files.")


@roles.command("list")
def roles_list(as_json: Json = False) -> int:
    """The roles, each with what it is."""
    from hobnob.exits import ExitError
    from hobnob.tui.plain import Output, print_json
    from hobnob.tui.roles import Roles

    found = Roles.home()
    listed: list[dict[str, str | None]] = []
    for name in found.names():
        try:
            listed.append({"name": name, "about": found.read(name).line, "problem": None})
        except ExitError as error:
            listed.append({"name": name, "about": None, "problem": error.message})
    if as_json:
        print_json(listed)
    elif listed:
        width = max(len(str(one["name"])) for one in listed)
        lines = [f"{one['name']:<{width}}  {one['about'] or one['problem']}" for one in listed]
        output = Output.stdout()
        output.write_now("\n".join(lines))
        output.end_now()
    else:
        print(f"There are none yet: a file NAME.md in {found.folder} is one.", file=sys.stderr)
    return Exit.OK


@roles.command("show")
def roles_show(
    role: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    as_json: Json = False,
) -> int:
    """The text of a role."""
    from hobnob.tui.plain import Output, print_json
    from hobnob.tui.roles import Roles

    found = Roles.home().read(role)
    if as_json:
        print_json(
            {
                "name": found.name,
                "about": found.about,
                "model": found.model,
                "options": dict(found.options),
                "text": found.text,
            }
        )
    else:
        output = Output.stdout()
        output.write_now(found.text)
        output.end_now()
    return Exit.OK


@roles.command("path")
def roles_path() -> int:
    """The folder that they lie in, there or not."""
    from hobnob.tui.roles import Roles

    print(Roles.home().folder)
    return Exit.OK


def in_role(
    role: str | None, system: str | None, model: str | None, option: list[str] | None
) -> tuple[str | None, str | None, list[str] | None]:
    """System prompt, model and options, with those of the role where none were given."""
    if role is None:
        return system, model, option
    if system is not None:
        raise usage("A role is a system prompt: choose --role or --system.")
    from hobnob.tui import roles as reading

    found = reading.Roles.home().read(role)
    return found.text, model or found.model, reading.pairs(found, option or [])
