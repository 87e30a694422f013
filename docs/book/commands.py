"""The page of the reference about the command lines, from what they say when asked for help."""

import re
from argparse import HelpFormatter
from functools import partial
from textwrap import indent

import typer

from cnn_numba.cli import app
from gpuless.__main__ import _parser
from gpuless.profile import command

HEAD = """
The command lines
=================

The commands and their options, in the words of ``--help`` (or ``-h``), which each of them knows as well.

"""


def commands(command, name, parent=None):
    """Yield a command's context, and those of the commands below it."""
    context = command.context_class(command, info_name=name, parent=parent)
    yield context
    for below in getattr(command, "list_commands", lambda _: [])(context):
        yield from commands(command.get_command(context, below), below, context)


def page():
    """Return the page, in reStructuredText."""
    known = commands(typer.main.get_command(app), "cnn-numba")
    return "\n".join([HEAD.lstrip(), *(line for context in known for line in _command(context)), *_gpuless()])


def _command(context):
    path = context.command_path
    yield from (path, "-" * len(path), "", f".. program:: {path}", "")
    about, _, examples = (context.command.help or "").partition("\b\nExamples:\n")
    yield from (_plain(about.replace("\b", "")), "")
    if examples:
        yield from (
            ".. code-block:: sh",
            "",
            indent(re.sub("^ +", "", examples, flags=re.MULTILINE), "   "),
            "",
        )
    for parameter in context.command.get_params(context):
        if parameter.name == "help":
            continue
        name, text = parameter.get_help_record(context)
        if parameter.param_type_name == "option":
            yield from (f".. option:: {name.replace(' / ', ', ')}", "", f"   {_plain(text)}", "")
        else:
            yield from (f"``{name}``", f"   {_plain(text)}", "")


def _plain(text):
    """Return words for people as reStructuredText: nothing in them is mark-up."""
    plain = re.sub(r"([*`|\\]|_\b)", r"\\\1", text)
    return re.sub(r"(?<!\S)--[\w-]+", r"``\g<0>``", plain)


def _gpuless():
    for name, parser in (("python -m gpuless", _parser()), (command.NAME, command.parser())):
        parser.formatter_class = partial(HelpFormatter, width=80)  # whatever the terminal's is
        yield from (name, "-" * len(name), "", ".. code-block:: text", "")
        yield from (indent(parser.format_help(), "   "), "")
