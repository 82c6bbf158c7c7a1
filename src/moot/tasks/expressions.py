"""Expressions of numbers with + - * /, as models write them: read without running anything, and calculated exactly."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction

LONGEST = 200
"""Characters of an expression that is read at all."""
DEEPEST = 40
"""Levels of an expression that is calculated."""
_SIGNS = str.maketrans("×·⋅∗÷−–[]", "****/--()", "$")
_COMMANDS = {"times": "*", "cdot": "*", "ast": "*", "div": "/", "left": "", "right": "", "big": "", "Big": ""}
_COMMAND = re.compile(rf"\\(?:({'|'.join(_COMMANDS)})(?![A-Za-z])|[,;:! ()\[\]])")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_READABLE = re.compile(r"[0-9+\-*/(). ]+")
_CALCULATED: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: Fraction.__add__,
    ast.Sub: Fraction.__sub__,
    ast.Mult: Fraction.__mul__,
    ast.Div: Fraction.__truediv__,
}


def plain(text: str) -> str:
    """In plain signs, without spaces. Of `expression = value` only the expression; what is too long stays as it is."""
    if len(text) > LONGEST:
        return text
    text = text.partition("=")[0].translate(_SIGNS)
    text = "".join(_COMMAND.sub(lambda command: _COMMANDS.get(command[1], ""), text).split())
    while (tidy := _FRACTION.sub(lambda parts: f"({_part(parts[1])}/{_part(parts[2])})", text)) != text:
        text = tidy
    return text.translate(str.maketrans("{}", "()"))


def _part(text: str) -> str:
    return text if text.isdecimal() else f"({text})"


def parsed(text: str) -> ast.expr | None:
    """Numbers, + - * / and parentheses; None for anything else, and for digits with a space between them."""
    if re.search(r"[0-9.]\s+[0-9.]", text) or len(text) > LONGEST or not _READABLE.fullmatch(expression := plain(text)):
        return None
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def numbers(node: ast.expr) -> list[ast.Constant]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Constant)]


def value(node: ast.expr, depth: int = DEEPEST) -> Fraction | None:
    """None where it has none: a division by 0, another operator than these four, or too many levels."""
    if isinstance(node, ast.Constant):
        return Fraction(repr(node.value)) if type(node.value) in (int, float) else None
    if depth == 0:
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = value(node.operand, depth - 1)
        return -inner if inner is not None and isinstance(node.op, ast.USub) else inner
    if not isinstance(node, ast.BinOp) or (calculated := _CALCULATED.get(type(node.op))) is None:
        return None
    left, right = value(node.left, depth - 1), value(node.right, depth - 1)
    if left is None or right is None or (right == 0 and isinstance(node.op, ast.Div)):
        return None
    return calculated(left, right)
