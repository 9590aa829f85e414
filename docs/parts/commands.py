"""The command reference, from the commands' own help."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import click
from dasklab.cli import COMMANDS, main

DESCRIBED_ONCE = {"inventory", "root", "help"}  # options of many commands, described on the page by hand
VERBATIM = "\b\n"  # how click marks a paragraph that must not be filled, such as examples
BAR = r"\|"  # in a table's cell
OWN_PAGES = {
    "wire": "Subcommands and options: [daskwire](../../lab/daskwire/README.md).",
    "minipve": "Subcommands and options: [minipve](../../lab/minipve/README.md).",
}


def reference() -> str:
    """Describe all commands below the titles of the overview."""
    return "\n".join(_groups())


def _groups() -> Iterator[str]:
    context = click.Context(main, info_name="dasklab")
    for title, names in COMMANDS.items():
        yield f"## {title}\n"
        for name in names:
            command = main.get_command(context, name)
            assert command is not None, name
            yield from describe(command, click.Context(command, info_name=name, parent=context))


def describe(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield a command's heading, usage, help and options; then the same for its subcommands."""
    name = context.command_path.removeprefix("dasklab ")
    yield f"### {name}\n"
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n"
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        yield _paragraph(paragraph)
    if name in OWN_PAGES:
        yield f"{OWN_PAGES[name]}\n"
        return
    if rows := list(_options(command, context)):
        yield "\n".join(["| option | effect |", "|---|---|", *rows, ""])
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.commands[inner_name]
            yield from describe(inner, click.Context(inner, info_name=inner_name, parent=context))


def _paragraph(text: str) -> str:
    if text.startswith(VERBATIM):
        return textwrap.indent(text.removeprefix(VERBATIM), "    ") + "\n"
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in DESCRIBED_ONCE and not option.hidden:
            names, effect = option.get_help_record(context) or ("", "")
            cells = (f"`{names}`", " ".join(effect.split()))
            yield f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"
