"""A wheel works alone: what it holds, what it asks for, and the README's commands with it."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.docs.examples import examples

ROOT = Path(__file__).parents[2]
PACKAGES = ("tracer", "analyzers", "exporters")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
URL = "https://example.org/tracer"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Without the checkout in reach."""


def clone(folder):
    """What is built, without tests, documentation and git."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in (*PACKAGES, "models"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel that `python -m build` made: from a source distribution, as indexes have both."""
    for name in ("build", "rcssmin", "rjsmin"):
        pytest.importorskip(name)
    source = clone(tmp_path_factory.mktemp("source"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "out", "."]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    [path] = (source / "out").glob("*.whl")
    return path


def distribution(requirement):
    """The name of a requirement as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def imported(file):
    """The packages that a file imports, not those of Python and ours."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0):
                names = [module]
            case _:
                continue
        yield from {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "tracer"}


def test_what_is_imported_is_declared():
    extras = PROJECT["optional-dependencies"]
    shipped = [extras[name] for name in extras if name != "dev"]
    declared = {distribution(each) for part in (PROJECT["dependencies"], *shipped) for each in part}
    brings = packages_distributions()
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    names = {name for file in files for name in imported(file)}
    asked = {distribution(brings.get(name, [name])[0]) for name in names}
    assert len(asked) > 15 and asked - {"pytest"} <= declared  # it loads its plugin itself


def test_all_leaves_out_what_does_not_build_everywhere():
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert "chainer" not in everything and "torch" in everything


@pytest.mark.parametrize("url", [None, URL])
def test_the_description_has_no_links_into_the_checkout(url, tmp_path):
    if url:
        (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nRepository = "{url}"\n')
    else:
        (tmp_path / "pyproject.toml").write_text("[project]\n")
    shutil.copy(ROOT / "README.md", tmp_path)
    code = "import setuptools; setuptools.setup = lambda **given: print(given['long_description'])"
    command = [sys.executable, "-c", f"{code}\nexec(open({str(ROOT / 'setup.py')!r}).read())"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", text)
    assert all(link.startswith("https:") for _, link in links)
    assert (f"{URL}/blob/HEAD/docs/" in text) == (url is not None) and "# tracer" in text


@pytest.mark.nightly
def test_a_wheel_has_models_data_and_what_indexes_show(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA")))
        for name in ("lenet/lenet", "lenet/lenet.int8", "resnet_cifar/resnet20"):
            shipped = ROOT / "models" / f"{name}.onnx"
            assert archive.read(f"tracer/examples/{shipped.name}") == shipped.read_bytes()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tracer", "tracer_onnx"}
    fields = message_from_string(metadata.decode())
    assert fields["License-Expression"] == "Apache-2.0" and fields["Summary"]
    assert "Programming Language :: Python :: 3.11" in fields.get_all("Classifier")


def interpreter(name):
    """A Python that runs, by its name or the folder where pyenv installs it; else skips."""
    found = sorted(Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}*/bin/python"))
    for command in (sys.executable if name == "this" else name, *map(str, found)):
        path = shutil.which(command)
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return pytest.skip(f"{name} is not installed")


@pytest.fixture(params=["this", "python3.12", "python3.13"])
def environment(request, wheel, tmp_path):
    """The programs of a new environment with the wheel and what it asks for, and nothing else."""
    folder = tmp_path / "environment"
    subprocess.run([interpreter(request.param), "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    reach = subprocess.run([*pip, "--dry-run", "--no-deps", "click"], env=ENVIRONMENT)
    if reach.returncode:
        pytest.skip("no index of packages can be reached")
    subprocess.run([*pip, str(wheel)], env=ENVIRONMENT, check=True)
    return folder / "bin"


@pytest.mark.nightly
def test_the_readmes_commands_run_from_an_empty_folder(environment, tmp_path):
    here = tmp_path / "empty"
    here.mkdir()
    commands = [[environment / "tracer", "demo"]]
    for example in examples(ROOT / "README.md"):
        if example.language == "python":
            commands.append([environment / "python", "-c", example.code])
        else:
            commands.append([environment / "tracer", *example.arguments])
    for command in commands:
        ended = subprocess.run(command, cwd=here, env=ENVIRONMENT, capture_output=True, text=True)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    assert (here / "demo" / "resnet20.html").is_file() and (here / "run.trace").is_file()
