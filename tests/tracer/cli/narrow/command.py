"""`tracer interpret`, run with what it prints."""

import json

import tracer
import tracer.cli


def run(capfd, *args):
    code = tracer.cli.main(["interpret", *(str(arg) for arg in args)])
    out = capfd.readouterr()
    return code, out.out, out.err


def nodes(capfd, *args):
    code, out, _ = run(capfd, *args, "--json")
    assert code == 0
    return {row["node"]: row for row in json.loads(out)["runs"][0]["nodes"]}
