"""The drill of CONTRIBUTING: a command is a module in `tracer/cli`."""

COMMAND = '''
"""`tracer inputs`: the names of what a model is fed."""

import click
import cloup


@cloup.command()
@cloup.argument("model")
def command(model: str) -> None:
    """List the inputs of MODEL."""
    from tracer.graph import loading

    for value in loading.load(model).inputs:
        click.echo(value.name)
'''


def test_a_command_takes_one_module_and_no_edit(copy, repository):
    copy.add("tracer/cli/inputs.py", COMMAND)
    assert "List the inputs of MODEL." in copy.tracer("--help")
    assert copy.tracer("inputs", str(repository / "models/lenet/lenet.onnx")) == "x\n"
    missing = copy.run("-m", "tracer", "inputs", "missing.onnx")
    assert (missing.returncode, missing.stderr.count("\n")) == (3, 1)
