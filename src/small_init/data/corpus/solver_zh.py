"""Solvers of the Chinese families."""

import math
import re
from collections.abc import Callable
from itertools import pairwise

from small_init.data.corpus.arithmetic import numbers
from small_init.data.corpus.problems import Problem
from small_init.data.corpus.solver_en import expression, lowest_terms
from small_init.data.corpus.syllogisms import syllogism

WEEKDAYS = "一二三四五六日"


def _remainders(problem: Problem) -> str | None:
    total, people = numbers(problem.question)
    found = re.search(r"每人最多分到几(\w+?)？", problem.question)
    each, rest = divmod(total, people)
    return f"每人 {each} {found[1]}，剩 {rest} {found[1]}" if found else None


def _divisors(problem: Problem) -> str | None:
    a, b = numbers(problem.question)
    return str(math.gcd(a, b) if "最大公约数" in problem.question else math.lcm(a, b))


def _equations(problem: Problem) -> str | None:
    found = re.search(r"(\d+)x ([+-]) (\d+) = (-?\d+)，", problem.question)
    if not found:
        return None
    factor, shift, right = int(found[1]), int(found[2] + found[3]), int(found[4])
    x, rest = divmod(right - shift, factor)
    return None if rest else str(x)


def _shopping(problem: Problem) -> str | None:
    count1, price1, count2, price2, *paid = numbers(problem.question)
    total = count1 * price1 + count2 * price2
    return f"{paid[0] - total if paid else total} 元"


def _journeys(problem: Problem) -> str | None:
    if "相向而行" in problem.question:
        speed, other, distance = numbers(problem.question)
        return f"{distance // (speed + other)} 小时" if distance % (speed + other) == 0 else None
    speed, hours = numbers(problem.question)
    return f"{speed * hours} 千米" if "一共行了多少千米" in problem.question else None


def _cages(problem: Problem) -> str | None:
    heads, legs = numbers(problem.question)
    rabbits = (legs - 2 * heads) // 2
    return f"{rabbits if '兔有几只' in problem.question else heads - rabbits} 只"


def _ages(problem: Problem) -> str | None:
    age, gap, years = numbers(problem.question)
    return f"{2 * (age + years) + gap} 岁"


def _discounts(problem: Problem) -> str | None:
    found = re.search(r"打([五六七八九])折", problem.question)
    price, count = numbers(problem.question)
    tenths = "零一二三四五六七八九".index(found[1]) if found else 0
    return f"{price * tenths * count // 10} 元" if price * tenths % 10 == 0 and found else None


def _rectangles(problem: Problem) -> str | None:
    a, b = numbers(problem.question)
    if "周长是多少厘米" in problem.question:
        return f"{2 * (a + b)} 厘米"
    if "面积是多少平方厘米" in problem.question:
        return f"{a * b} 平方厘米"
    return f"{a // b} 厘米" if a % b == 0 else None


def _sequences(problem: Problem) -> str | None:
    """The next term if all differences, or else all quotients, are the same."""
    terms = numbers(problem.question)
    differences = {after - before for before, after in pairwise(terms)}
    if len(differences) == 1:
        return str(terms[-1] + differences.pop())
    factor, rest = divmod(terms[1], terms[0])
    geometric = not rest and all(after == factor * before for before, after in pairwise(terms))
    return str(terms[-1] * factor) if geometric else None


def _weekdays(problem: Problem) -> str | None:
    found = re.search(r"今天是星期(\w)，再过 (\d+) 天是星期几", problem.question)
    return f"星期{WEEKDAYS[(WEEKDAYS.index(found[1]) + int(found[2])) % 7]}" if found else None


def _orders(problem: Problem) -> str | None:
    """The end of a chain of comparisons, by counting who is above whom."""
    facts, _, ask = problem.question.partition("。谁")
    above: dict[str, str] = {}
    for left, right, word in re.findall(r"(\w+?)比(\w+?)([高矮重轻大小])(?:，|$)", facts):
        more = word in "高重大"
        above[right if more else left] = left if more else right
    people = set(above) | set(above.values())
    top, bottom = people - set(above), people - set(above.values())
    chosen = top if ask[-2] in "高重大" else bottom
    return chosen.pop() if len(chosen) == 1 and len(above) == len(people) - 1 else None


def _quoted(problem: Problem) -> list[str]:
    return re.findall(r"“(.*?)”", problem.question)


SOLVERS: dict[str, Callable[[Problem], str | None]] = {
    "sums": expression,
    "products": expression,
    "remainders": _remainders,
    "divisors": _divisors,
    "equations": _equations,
    "shopping": _shopping,
    "journeys": _journeys,
    "cages": _cages,
    "ages": _ages,
    "discounts": _discounts,
    "rectangles": _rectangles,
    "sequences": _sequences,
    "weekdays": _weekdays,
    "orders": _orders,
    "syllogisms": syllogism,
    "reversals": lambda problem: _quoted(problem)[0][::-1],
    "counting": lambda problem: str(_quoted(problem)[0].count(_quoted(problem)[1])),
    "fractions": lowest_terms,
}
