"""Arithmetic as texts print it: read exactly, with units, currencies and separators taken off."""

import re
from fractions import Fraction

CURRENCIES = re.compile(r"[$€£¥]|\bdollars?\b")
_SYMBOL = re.compile(r"[$€£¥](?=\d)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_TIMES = re.compile(r"(?<=[\w)]) x (?=[\d(])|(?<=\d)x(?=\d)")
# `12 toy cars * …`, `14 shrimp/minute = …`: words between a number and the next sign.
_UNIT = re.compile(r"(?<=\d)[ /]?[A-Za-z]+(?:[/ ][A-Za-z]+){0,3}(?= *[-+*/=])")
_EQUATION = re.compile(r"(?<![\w.])([\d.()+*/% -]*\d[\d.()+*/% -]*)=\s*(-?\d+(?:\.\d+)?%?)(?!\d)")


def bare_arithmetic(text: str) -> str:
    """The text with its calculations in plain signs: `4 toy cars x $6 = $24` → `4 * 6 = 24`."""
    text = _THOUSANDS.sub("", _SYMBOL.sub("", text)).replace("×", "*").replace("÷", "/")
    return _UNIT.sub(" ", _TIMES.sub(" * ", text))


def equations(text: str) -> list[tuple[str, str]]:
    """Every `expression = number` in a text, both sides as strings that `value` reads."""
    return [(left.strip(), right) for left, right in _EQUATION.findall(bare_arithmetic(text))]


def value(expression: str) -> Fraction | None:
    """The exact value of +, -, *, / and brackets over decimals and percentages; None if none."""
    bare = expression.replace(" ", "")
    if not re.fullmatch(r"[\d.()+*/%-]+", bare):
        return None
    exact = re.sub(r"\d+(?:\.\d+)?|\.\d+", lambda n: f"Fraction('{n.group()}')", bare)
    exact = re.sub(r"(Fraction\('[\d.]+'\))%", r"(\1/100)", exact)
    try:
        # Only fractions, brackets and the four signs are left, so nothing else can be evaluated.
        found = eval(exact, {"__builtins__": {}}, {"Fraction": Fraction})
    except (SyntaxError, ZeroDivisionError, TypeError):
        return None
    return found if isinstance(found, Fraction) else None


def numbers(text: str) -> list[int]:
    """The whole numbers in a text, signs left out, in their order."""
    return [int(found) for found in re.findall(r"\d+", text)]
