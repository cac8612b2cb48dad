"""Docstrings of functions that return arrays or tensors give their shapes.

The functions are the public ones of models, methods and training. Only their source is read.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pairsmith"
PACKAGES = ("models", "methods", "training")
SHAPE = re.compile(r"``\([^()`]*[,…][^()`]*\)``|``\(\)``|\bof any shape\b")
"""A shape such as ``(n, d)``, ``(n,)``, ``(…)`` or ``()``, or the words that there may be any."""

LACKING = {
    # Its module's docstring gives the shapes of all its rules.
    "models/language/combine.py: contrast",
    "models/language/combine.py: guidance",
    "models/language/combine.py: self_debias",
}
"""Functions whose docstrings need no shape."""


def array_types() -> set[str]:
    """The names of array and tensor types: numpy's, torch's, and those that a module defines by them."""
    names = {"NDArray", "Tensor"}
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("NDArray["):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def without_shape(source: str, types: set[str]) -> Iterator[str]:
    """The public functions and methods that return one of these types, and give no shape in their docstring.

    A shape in the docstring of a method's class counts.
    """
    returned = re.compile(rf"\b({'|'.join(sorted(types))})\b")
    for node in ast.parse(source).body:
        functions = node.body if isinstance(node, ast.ClassDef) else [node]
        for function in functions:
            if not isinstance(function, ast.FunctionDef) or function.returns is None:
                continue
            owners = [function] if function is node else [node, function]
            if any(owner.name.startswith("_") for owner in owners):
                continue
            docstrings = "\n".join(ast.get_docstring(owner) or "" for owner in owners)
            if returned.search(ast.unparse(function.returns)) and not SHAPE.search(docstrings):
                yield ".".join(owner.name for owner in owners)


def test_functions_that_return_arrays_give_their_shapes():
    types = array_types()
    assert {"Float32s", "Float64s"} <= types
    lacking = {
        f"{file.relative_to(SOURCE).as_posix()}: {name}"
        for package in PACKAGES
        for file in (SOURCE / package).rglob("*.py")
        for name in without_shape(file.read_text(encoding="utf-8"), types)
    }
    assert lacking == LACKING


def test_what_counts_as_a_shape():
    source = """
def vectors() -> Tensor:
    "The vectors, ``(n, d)`` float32."

def scores() -> tuple[Tensor, list[int]]:
    "The scores (M6) of ``texts``."

def loss() -> dict[str, Tensor]:
    "The loss, ``()`` float32."

def dropped(values) -> Tensor:
    "Values of any shape."

def called() -> Tensor:
    "What ``scores(x, y)`` gives."

def count() -> int:
    "A number."

def _hidden() -> Tensor:
    "No one calls it from outside."

class Encoder:
    "It gives vectors, ``(n,)``."

    def encode(self) -> NDArray[np.float32]:
        "The vectors."

class Reader:
    "It reads."

    def read(self) -> NDArray[np.float32]:
        "The scores."
"""
    assert list(without_shape(source, {"Tensor", "NDArray"})) == ["scores", "called", "Reader.read"]
