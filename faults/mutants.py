"""Mutants: a module's source with one small change that a test should notice.

Changed are the bodies and defaults of functions: comparisons, arithmetic, logic, numbers by one,
True and False, conditions, bounds of slices, pairs of functions such as min and max, and statements
that are left out. Texts, annotations, messages of errors, logging and `strict=` are left alone.
"""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitXor: ast.BitAnd,
    ast.MatMult: ast.Mult,
}
_PAIRS = (
    *(("min", "max"), ("any", "all"), ("minimum", "maximum"), ("amin", "amax")),
    *(("floor", "ceil"), ("argmin", "argmax"), ("zeros", "ones"), ("sum", "mean")),
    *(("left", "right"), ("zeros_like", "ones_like"), ("first", "last")),
)
SWAPPED = dict(_PAIRS) | {second: first for first, second in _PAIRS}


class Mutant(NamedTuple):
    """One change.

    Args:
        function: qualified name of the outermost function with the change, or of the method.
        change: old and new text; with a number if the function has the same change more than once.
        lines: first and last line of the statement with the change, or of the whole function if it
            is in a default.
        tree: the whole module with the change.
        default: new value of a default as an expression, its name; None if the body has the change.
    """

    function: str
    change: str
    lines: tuple[int, int]
    tree: ast.Module
    default: tuple[str, ast.expr] | None


class _Site(NamedTuple):
    """A place to change: attribute (and index) of the parent, and what comes there."""

    parent: ast.AST
    field: str
    at: int | None
    old: ast.AST
    new: ast.AST
    lines: tuple[int, int]


def make_mutants(source: str) -> Iterator[Mutant]:
    r"""Yield all mutants of a source, one at a time: the tree is the same object, changed.

    >>> [own.change for own in make_mutants("def f(a, b=2):\n    return a < b")]
    ['b=2 -> 3', 'b=2 -> 1', 'return a < b -> left out', 'a < b -> a <= b', 'a < b -> a >= b']
    """
    tree = ast.parse(source)
    for name, function in _functions(tree.body, ""):
        counts: dict[str, int] = {}
        arguments = function.args
        names = [own.arg for own in (*arguments.posonlyargs, *arguments.args)]
        pairs: list[tuple[str, ast.expr | None]] = []
        if arguments.defaults:
            pairs += zip(names[-len(arguments.defaults) :], arguments.defaults, strict=True)
        pairs += zip([own.arg for own in arguments.kwonlyargs], arguments.kw_defaults, strict=True)
        whole = (function.lineno, function.end_lineno or function.lineno)
        for argument, default in pairs:
            if not isinstance(default, ast.Constant):
                continue
            for new in _constants(default):
                change = f"{argument}={ast.unparse(default)} -> {ast.unparse(new)}"
                yield Mutant(name, change, whole, tree, (argument, new))
        for site in _sites(function):
            # A number says little without what is around it.
            around = isinstance(site.old, ast.Constant) and not isinstance(site.parent, ast.stmt)
            old_text = ast.unparse(site.parent if around else site.old)
            _put(site, site.new)
            new_text = ast.unparse(site.parent if around else site.new)
            if isinstance(site.new, ast.Pass):
                new_text = "left out"
            change = " ".join(f"{old_text} -> {new_text}".split())
            counts[change] = counts.get(change, 0) + 1
            if counts[change] > 1:
                change += f" ({counts[change]})"
            yield Mutant(name, change, site.lines, tree, None)
            _put(site, site.old)


def _put(site: _Site, node: ast.AST) -> None:
    if site.at is None:
        setattr(site.parent, site.field, node)
    else:
        getattr(site.parent, site.field)[site.at] = node


def _functions(
    body: list[ast.stmt], prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}.")


def _sites(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[_Site]:
    sites: list[_Site] = []
    for index, statement in enumerate(function.body):
        _visit(function, "body", index, statement, (0, 0), sites)
    return sites


def _visit(
    parent: ast.AST,
    field: str,
    index: int | None,
    node: ast.AST,
    lines: tuple[int, int],
    sites: list[_Site],
) -> None:
    """Add the sites at a node, then those below it."""
    if isinstance(node, ast.stmt):
        end = node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        lines = (node.lineno, max(node.lineno, body[0].lineno - 1) if body else end)
    for new in _replacements(node, parent, field):
        ast.copy_location(new, node)
        sites.append(_Site(parent, field, index, node, ast.fix_missing_locations(new), lines))
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments) or _is_logging(
        node
    ):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        if isinstance(value, list):
            for at, each in enumerate(value):
                if isinstance(each, ast.AST):
                    _visit(node, name, at, each, lines, sites)
        elif isinstance(value, ast.AST):
            _visit(node, name, None, value, lines, sites)


def _is_logging(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith(
        ("logger.", "log.", "warnings.")
    )


def _replacements(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield what may come in the place of a node."""
    own = isinstance(node, ast.Compare) or _is_not(node)  # they have changes of their own
    if field in ("test", "ifs") and isinstance(node, ast.expr) and not own:
        yield ast.UnaryOp(ast.Not(), node)
    if isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from _names(node, parent, field)
    elif isinstance(node, ast.stmt):
        yield from _statements(node)
    else:
        yield from _expressions(node)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                new = copy.copy(node)
                new.ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
                yield new
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.BinOp):
        if not _is_text(node):
            yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield ast.Slice(None, node.upper, node.step)
        if node.upper is not None:
            yield ast.Slice(node.lower, None, node.step)


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.AugAssign):
        yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
    left_out = isinstance(node, ast.Raise | ast.AugAssign)
    left_out |= isinstance(node, ast.Return) and node.value is not None
    left_out |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    left_out |= isinstance(node, ast.Assign) and not isinstance(
        node.targets[0], ast.Name | ast.Tuple
    )
    if left_out and not _is_logging(node):
        yield ast.Pass()


def _names(node: ast.Name | ast.Attribute, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield the other of a pair: `max(`, `x.sum(`, `np.maximum.at(`."""
    if isinstance(node, ast.Name):
        if node.id in SWAPPED and isinstance(parent, ast.Call) and field == "func":
            yield ast.Name(SWAPPED[node.id], node.ctx)
    elif node.attr in SWAPPED and isinstance(parent, ast.Call | ast.Attribute) and field != "args":
        yield ast.Attribute(node.value, SWAPPED[node.attr], node.ctx)


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_text(node: ast.BinOp) -> bool:
    """Tell whether a text is added or formatted."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _constants(node: ast.Constant) -> Iterator[ast.Constant]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node.value, str) and node.value in SWAPPED:
        yield ast.Constant(SWAPPED[node.value])
