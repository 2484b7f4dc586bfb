"""Measures the house: how many lines and files, and how fine its grain is. See CONTRIBUTING.md."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

FOLDERS = ("tracer", "analyzers", "exporters")
"""The product. `models` and others beside it count for the product in all."""
BESIDE = ("models", "benchmarks", "experiments")
REGISTRIES = ("ops", "rules", "models", "file_formats", "changes", "advice", "measures", "hardware",
              "kinds", "orders", "sets", "cli", "nodes")  # fmt: skip
"""Folders whose modules are found by their names: one small file each is what they are for."""
BARE = frozenset((
    "told", "joined", "whole", "each", "made", "kept", "known", "alone", "cut", "first",
    "others", "between", "alike", "shown", "taken", "begun", "found", "few", "most", "left",
    "given", "seen", "held", "met", "said", "ended", "moved", "reached", "own", "same", "much",
    "within",
))  # fmt: skip
"""Words that alone do not say what a function returns."""
SMALL = 100
"""Lines below which a file with one reader is a drawer that belongs into its chest."""


class House:
    """The Python files below a folder, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts = {name: (root / name).read_text("utf-8") for name in _files(root, FOLDERS)}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.lines = {name: text.count("\n") for name, text in self.texts.items()}

    def lines_of_packages(self) -> dict[str, int]:
        """Lines by package: `tracer/graph`, or `tracer` for the files that are in no package."""
        total = Counter[str]()
        for name, lines in self.lines.items():
            parts = Path(name).parts
            total["/".join(parts[: min(2, len(parts) - 1)])] += lines
        return dict(total)

    def lines_beside(self) -> int:
        """Lines of `models`, `benchmarks` and `experiments`."""
        texts = ((self.root / name).read_text("utf-8") for name in _files(self.root, BESIDE))
        return sum(text.count("\n") for text in texts)

    def drawers(self) -> list[str]:
        """Files under 100 lines that exactly one file imports, outside of registries."""
        readers = self._readers()
        return [
            name for name, lines in self.lines.items()
            if lines < SMALL and len(readers[name]) == 1
            and Path(name).parent.name not in REGISTRIES
        ]  # fmt: skip

    def named_once(self) -> list[str]:
        """Private functions that their file names once beside the definition: `file:function`."""
        found = []
        for name, tree in self.trees.items():
            names = Counter(
                node.id if isinstance(node, ast.Name) else node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Name | ast.Attribute)
            )
            found += [
                f"{name}:{function.name}" for function in _functions(tree)
                if function.name.startswith("_") and not function.name.startswith("__")
                and not function.decorator_list and names[function.name] == 1
            ]  # fmt: skip
        return found

    def functions(self) -> int:
        """Number of functions and methods."""
        return sum(len(_functions(tree)) for tree in self.trees.values())

    def import_lines(self) -> int:
        """Lines of import statements."""
        nodes = (node for tree in self.trees.values() for node in ast.walk(tree))
        imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
        return sum((node.end_lineno or 0) - node.lineno + 1 for node in imports)

    def bare_names(self) -> list[str]:
        """Functions whose whole name is one of the words in `BARE`: `file:function`."""
        return [
            f"{name}:{function.name}" for name, tree in self.trees.items()
            for function in _functions(tree) if function.name.strip("_") in BARE
        ]  # fmt: skip

    def long_functions(self, limit: int) -> list[str]:
        """Functions of more lines than `limit`, docstring included: `file:function`."""
        return [
            f"{name}:{function.name}" for name, tree in self.trees.items()
            for function in _functions(tree)
            if (function.end_lineno or 0) - function.lineno + 1 > limit
        ]  # fmt: skip

    def wide_functions(self, limit: int) -> list[str]:
        """Functions of more parameters than `limit`, operators excepted: `file:function`."""
        return [
            f"{name}:{function.name}" for name, tree in self.trees.items()
            if not name.startswith("tracer/interpreter/")  # ONNX sets the parameters there
            for function in _functions(tree) if _parameters(function) > limit
        ]  # fmt: skip

    def options_beside(self) -> list[str]:
        """Files that declare an option of the command line outside the module of options."""
        return [
            name for name, tree in self.trees.items()
            if name != "tracer/cli/_options.py"
            and any(ast.unparse(node.func) in ("cloup.option", "click.option")
                    for node in ast.walk(tree) if isinstance(node, ast.Call))
        ]  # fmt: skip

    def _readers(self) -> dict[str, set[str]]:
        modules = {_module(name): name for name in self.texts}
        readers = defaultdict[str, set[str]](set)
        for name, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        target = modules.get(f"{node.module}.{alias.name}")
                        target = target or modules.get(node.module)
                        if target:
                            readers[target].add(name)
        return readers


def _files(root: Path, folders: tuple[str, ...]) -> list[str]:
    """Names of the Python files below the folders; links to other folders are not followed."""
    paths = (path for folder in folders for path in (root / folder).rglob("*.py"))
    names = (path.relative_to(root).as_posix() for path in paths)
    links = tuple(f"tracer/{folder}/" for folder in FOLDERS)
    return sorted(name for name in names if not name.startswith(links))


def _module(name: str) -> str:
    dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.split(".")[0] == "tracer" else f"tracer.{dotted}"


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _parameters(function: ast.FunctionDef) -> int:
    """Number of parameters beside `self` and `cls`."""
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])
