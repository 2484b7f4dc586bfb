"""The drill of CONTRIBUTING: an option is a field of the arguments of its function."""

ARGUMENTS = "tracer/api/narrow.py"
FIELD = """
    tile: int | None = option("""
ADDED = """
    rounds: int | None = option(
        "Rounds of the drill.  [default: 1]", None,
        group=_SUMS, rule=maybe(integer(1)), metavar="N",
    )  # fmt: skip
    tile: int | None = option("""


def test_an_option_takes_one_field(copy, repository):
    copy.edit(ARGUMENTS, FIELD, ADDED)
    page = copy.tracer("narrow", "--help-all")
    accumulators = page.partition("Accumulators:")[2].partition("\n\n")[0]
    assert "--rounds N" in accumulators and "Rounds of the drill.  [default: 1]" in accumulators
    shown = copy.python("import inspect, tracer; print(inspect.signature(tracer.narrow))")
    assert "rounds: 'int | None' = None" in shown
    shown = copy.python("import tracer; print(tracer.narrow.__doc__)")
    assert "rounds: Rounds of the drill." in shown
    model = str(repository / "models/lenet/lenet.int8.onnx")
    command = ("-m", "tracer", "narrow", model, "--bits", "16", "--data", "digits")
    wrong = copy.run(*command, "--rounds", "x")
    assert (wrong.returncode, "--rounds" in wrong.stderr) == (2, True)
