"""Pooling under torch.compile and as ONNX, at lengths other than the one it was exported with."""

import io
import shutil
import warnings

import pytest
import torch

from earmark.pooling import POOLINGS, Pooling
from earmark.pooling.functions import FUNCTIONS

N_HIDDEN, N_CLASSES = 6, 3
CASES = [(name, "self") for name in POOLINGS] + [("attention", "mean"), ("linear", "learned")]


def make(name, rule="self"):
    torch.manual_seed(0)
    return Pooling(name, (5, 5, 5), rule, N_HIDDEN, N_CLASSES).eval()


def bags(n_frames, batch=2):
    torch.manual_seed(n_frames)
    x = torch.rand(batch, n_frames, N_CLASSES)
    u = torch.randn(batch, n_frames, N_HIDDEN)
    lengths = torch.tensor([n_frames, max(1, n_frames // 3)])[:batch, None]
    return x, u, torch.arange(n_frames) < lengths


def assert_same(module, pooling, n_frames):
    x, u, mask = bags(n_frames)
    results = []
    for each in (module, pooling):
        leaf = x.clone().requires_grad_()
        y = each(leaf, u, mask)
        y.sum().backward()
        results.append((y.detach(), leaf.grad))
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "rule"), CASES)
def test_compiled_pooling_is_one_graph_and_equal(name, rule):
    torch._dynamo.reset()
    pooling = make(name, rule)
    assert_same(torch.compile(pooling, fullgraph=True, backend="eager"), pooling, 126)


@pytest.mark.parametrize("name", POOLINGS)
def test_compiled_functions_are_one_graph_and_equal(name):
    torch._dynamo.reset()
    x, u, mask = bags(126)
    arguments = [a.detach() for a in make(name).weighting.arguments(u)]
    function = FUNCTIONS[f"{name.replace('-', '_')}_pool"]
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, *arguments, mask), function(x, *arguments, mask))


def test_pooling_compiled_to_machine_code_is_equal():
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    torch._dynamo.reset()
    pooling = make("attention")
    compiled = torch.compile(pooling, fullgraph=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        assert_same(compiled, pooling, 126)


AUTO = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
NAMED = {0: torch.export.Dim("batch"), 1: torch.export.Dim("frames", min=126)}


class AllPoolings(torch.nn.Module):
    """Some cases side by side: an export has its fixed cost, and a large one takes far longer."""

    def __init__(self, cases):
        super().__init__()
        self.poolings = torch.nn.ModuleList(make(*case) for case in cases)

    def forward(self, frame_probs, hidden, mask):
        return tuple(pooling(frame_probs, hidden, mask) for pooling in self.poolings)


@pytest.mark.parametrize(
    ("cases", "axes"),
    [*((CASES[first::3], AUTO) for first in range(3)), ([("attention", "self")], NAMED)],
    ids=["auto 0", "auto 1", "auto 2", "named"],
)
def test_onnx_keeps_the_time_axis_free(cases, axes):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    pytest.importorskip("onnxscript", reason="needs the extra 'onnx'")
    # An example in which every stage holds more than one segment: torch.export treats a size of 1
    # as a constant. docs/pooling.md explains it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program = torch.onnx.export(
            AllPoolings(cases).eval(),
            bags(700),
            dynamo=True,
            dynamic_shapes={"frame_probs": axes, "hidden": axes, "mask": axes},
            input_names=["frame_probs", "hidden", "mask"],
            verbose=False,
        )
    file = io.BytesIO()
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    needed = {value.name for value in session.get_inputs()}
    for n_frames in (1, 7, 125, 126, 333, 625, 1500):
        x, u, mask = bags(n_frames)
        feed = {"frame_probs": x, "hidden": u, "mask": mask}
        outputs = session.run(None, {k: v.numpy() for k, v in feed.items() if k in needed})
        for case, got in zip(cases, outputs, strict=True):
            want = make(*case)(x, u, mask)
            torch.testing.assert_close(
                torch.from_numpy(got), want, atol=1e-6, rtol=1e-5, msg=f"{case}, {n_frames} frames"
            )
