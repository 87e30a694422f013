"""The commands ``bench ...``, which a clone has beside its benchmarks."""

import sys

import typer
from typer.core import TyperCommand, TyperGroup

from cnn_numba.cli.shared import OPTIONS, CliError
from cnn_numba.extras import CHECKOUT, REPOSITORY, in_checkout

_ELSEWHERE = f"the benchmarks are not in the installed package; they are in the repository: {REPOSITORY}"


class _Benchmarks(TyperGroup):
    """The commands of a clone's `benchmarks`; in an installed package any name says where they are."""

    @property
    def commands(self):
        """The commands by name: this clone's, not those of a `benchmarks` in the current folder."""
        if not in_checkout():
            return {}
        if sys.path[0] != str(CHECKOUT):
            sys.path.insert(0, str(CHECKOUT))
        from benchmarks.commands import commands  # when they are needed

        return typer.main.get_command(commands).commands

    @commands.setter
    def commands(self, none):
        pass  # the constructor sets what Typer knows

    def get_command(self, ctx, cmd_name):
        if in_checkout():
            return super().get_command(ctx, cmd_name)
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        how = OPTIONS | {"context_settings": OPTIONS["context_settings"] | anything}
        return TyperCommand(cmd_name, callback=_refuse, help=_ELSEWHERE, **how)


def _refuse():
    raise CliError(_ELSEWHERE, 2)


commands = typer.Typer(
    cls=_Benchmarks,
    help="Measure operations, layers, epochs, accuracy, start-up or simulators; draw what was measured.",
    short_help="Measure, and draw what was measured.",
    **OPTIONS,
)


@commands.callback()
def _group():
    pass  # Typer needs a callback or a command in a group
