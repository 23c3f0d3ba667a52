"""Every public class and function has an example in its docstring; `--doctest-modules` runs it."""

import inspect
from importlib import import_module

import pytest

import earmark
from earmark.pooling.functions import FUNCTIONS

PACKAGES = (
    "earmark",
    "earmark.metrics",
    "earmark.pooling",
    "earmark.plots",
    "earmark.reports",
    "earmark.experiments",
    "earmark.inference.tuning",
)
PUBLIC = {
    f"{package}.{name}": value
    for package in PACKAGES
    for name in import_module(package).__all__
    if inspect.isclass(value := getattr(import_module(package), name)) or inspect.isroutine(value)
}
METHODS = [
    name
    for name in vars(earmark.Detector)
    if not name.startswith("_") and inspect.isroutine(getattr(earmark.Detector, name))
]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_class_or_function_has_an_example(name):
    # `__doc__`, since `inspect.getdoc` returns that of a parent class where there is none
    assert ">>>" in (PUBLIC[name].__doc__ or ""), f"the docstring of {name} has no doctest"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_the_detector_has_an_example(name):
    method = getattr(earmark.Detector, name)
    assert ">>>" in (method.__doc__ or ""), f"the docstring of Detector.{name} has no doctest"


def test_all_methods_of_the_detector_are_checked():
    expected = "load save export detect detect_each detect_files decode events"
    expected += " frame_scores plot stream stream_scores tags"
    assert set(METHODS) == set(expected.split())


def test_the_examples_of_the_generated_functions_are_collected():
    assert import_module("earmark.pooling.functions").__test__ is FUNCTIONS
