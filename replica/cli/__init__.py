"""The command line. Bad input is one line on standard error and exit code 2."""

from __future__ import annotations

import sys
from typing import ClassVar

import click

import replica
from replica.errors import DerivationError, ReplicaError, UsageError, shown


class LazyGroup(click.Group):
    """Commands live in modules that are imported when they are called."""

    commands_by_module: ClassVar[dict[str, str]] = {
        "derive": "Derive the replica equations and print or write them.",
        "check": "Compare equations written by hand with the derived ones.",
        "solve": "Solve the saddle-point equations, with error bars.",
        "population": "Risk at infinite data: the best weights and the Bayes risk.",
        "flow": "Overlaps under one-pass SGD and gradient flow.",
        "bayes": "Fixed points of the Bayes-optimal learner, and the hard phase.",
        "phase": "Map of the replicon: where replica symmetry is stable.",
        "compare": "Test errors of activations and of Bayes, side by side.",
        "simulate": "Train on sampled data and measure the overlaps.",
        "validate": "Compare theory with simulation and write a report.",
        "codegen": "Print the generated source of a model's kernels.",
        "bench": "Measure this machine: engine and baselines side by side.",
        "doctor": "Say which backends work here and why.",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_by_module)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.commands_by_module:
            return None
        from importlib import import_module

        command = import_module(f"replica.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_by_module.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(replica.__version__, prog_name="replica")
def cli() -> None:
    """Replica equations of attention models: derive, solve, simulate, compare."""


def main() -> None:
    """Entry point of the ``replica`` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        code = cli.main(arguments, prog_name="replica", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return 130
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        click.echo(f"replica: {_one_line(error)}", err=True)
        return 2
    except UsageError as error:
        # a dotted field is a key of the user's file, not an option
        name = error.field if "." in error.field else f"--{error.field.replace('_', '-')}"
        click.echo(
            f"replica: {shown(name)}: {shown(error.value)} is not allowed; "
            f"allowed: {error.allowed}", err=True,
        )
        return 2
    except DerivationError as error:
        click.echo(f"replica: {error}", err=True)
        return 1
    except ReplicaError as error:
        click.echo(f"replica: {error}", err=True)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as error:
        click.echo(f"replica: {error.strerror or error}", err=True)
        return 2


def _one_line(error: click.ClickException) -> str:
    return " ".join(error.format_message().split())
