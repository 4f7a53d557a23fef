"""Chinese problems from the project's own templates: numbers, logic and characters."""

import math
import random

from small_init.data.corpus.generated_zh_stories import (
    ages,
    cages,
    discounts,
    journeys,
    orders,
    remainders,
    shopping,
)
from small_init.data.corpus.problems import Draw, Problem

WEEKDAYS = "一二三四五六日"
KINDS = "医生 老师 司机 歌手 农民 画家 学生 木匠 律师 厨师 船员 诗人 商人 邮递员".split()
CHARACTERS = "春夏秋冬山水风云花鸟鱼虫天地日月星光东西南北江河湖海松竹梅兰金木火土"


def _problem(family: str, question: str, answer: object, steps: str = "") -> Problem:
    return Problem(question, str(answer), "zh", family, steps)


def sums(rng: random.Random) -> Problem:
    """加减法: two to five terms of one to three digits."""
    digits = rng.randint(1, 3)
    terms = [rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(rng.randint(2, 5))]
    total, expression, lines = terms[0], str(terms[0]), []
    for term in terms[1:]:
        sign = rng.choice("+-")
        value = total + term if sign == "+" else total - term
        lines.append(f"{total} {sign} {term} = {value}")
        total, expression = value, f"{expression} {sign} {term}"
    ask = rng.choice(("计算：{}。", "{} 等于多少？", "求 {} 的值。", "请算出 {} 的结果。"))
    return _problem("sums", ask.format(expression), total, "，".join(lines) + "。")


def products(rng: random.Random) -> Problem:
    """乘法, with partial products."""
    left = rng.randrange(2, 10 ** rng.randint(1, 3) + 2)
    right = rng.randrange(2, 10 ** rng.randint(1, 3) + 2)
    parts = [int(digit) * 10**place for place, digit in enumerate(reversed(str(right)))]
    lines = [f"{left} × {part} = {left * part}" for part in parts if part]
    ask = rng.choice(("计算：{}。", "{} 等于多少？", "求 {} 的积。"))
    steps = "，".join(lines) + f"，合起来是 {left * right}。"
    return _problem("products", ask.format(f"{left} × {right}"), left * right, steps)


def divisors(rng: random.Random) -> Problem:
    """最大公约数 and 最小公倍数, by Euclid."""
    a, b = rng.randint(2, 600), rng.randint(2, 600)
    lines, x, y = [], a, b
    while y:
        lines.append(f"{x} 除以 {y} 余 {x % y}")
        x, y = y, x % y
    steps = "，".join(lines) + f"，所以最大公约数是 {x}"
    if rng.random() < 0.5:
        return _problem("divisors", f"{a} 和 {b} 的最大公约数是多少？", x, steps + "。")
    multiple = a * b // x
    steps += f"，最小公倍数是 {a} × {b} ÷ {x} = {multiple}。"
    return _problem("divisors", f"{a} 和 {b} 的最小公倍数是多少？", multiple, steps)


def equations(rng: random.Random) -> Problem:
    """一元一次方程."""
    factor, shift, x = rng.randint(2, 50), rng.randint(1, 100), rng.randint(1, 60)
    sign = rng.choice("+-")
    right = factor * x + shift if sign == "+" else factor * x - shift
    back = "-" if sign == "+" else "+"
    question = f"解方程：{factor}x {sign} {shift} = {right}，x 等于多少？"
    steps = (
        f"{factor}x = {right} {back} {shift} = {factor * x}，x = {factor * x} ÷ {factor} = {x}。"
    )
    return _problem("equations", question, x, steps)


def rectangles(rng: random.Random) -> Problem:
    """长方形: perimeter, area, or a side from the area."""
    width, length = sorted(rng.sample(range(2, 100), 2))
    kind = rng.randrange(3)
    if kind == 0:
        question = f"一个长方形长 {length} 厘米，宽 {width} 厘米，周长是多少厘米？"
        half = length + width
        steps = f"({length} + {width}) × 2 = {half} × 2 = {2 * half}。"
        return _problem("rectangles", question, f"{2 * half} 厘米", steps)
    area = length * width
    if kind == 1:
        question = f"一个长方形长 {length} 厘米，宽 {width} 厘米，面积是多少平方厘米？"
        return _problem(
            "rectangles", question, f"{area} 平方厘米", f"{length} × {width} = {area}。"
        )
    question = f"一个长方形的面积是 {area} 平方厘米，长是 {length} 厘米，宽是多少厘米？"
    return _problem("rectangles", question, f"{width} 厘米", f"{area} ÷ {length} = {width}。")


def sequences(rng: random.Random) -> Problem:
    """找规律: arithmetic or doubling."""
    start, step = rng.randint(1, 60), rng.randint(2, 40)
    if rng.random() < 0.7:
        terms = [start + step * number for number in range(6)]
        steps = f"每一项比前一项大 {step}，{terms[4]} + {step} = {terms[5]}。"
    else:
        factor = rng.choice((2, 3))
        terms = [start * factor**number for number in range(6)]
        steps = f"每一项是前一项的 {factor} 倍，{terms[4]} × {factor} = {terms[5]}。"
    shown = "，".join(map(str, terms[:5]))
    return _problem("sequences", f"找规律填数：{shown}，下一个数是多少？", terms[5], steps)


def weekdays(rng: random.Random) -> Problem:
    """星期推算."""
    today, days = rng.randrange(7), rng.randint(2, 400)
    later = (today + days) % 7
    question = f"今天是星期{WEEKDAYS[today]}，再过 {days} 天是星期几？"
    steps = f"{days} 除以 7 余 {days % 7}，从星期{WEEKDAYS[today]}往后数 {days % 7} 天。"
    return _problem("weekdays", question, f"星期{WEEKDAYS[later]}", steps)


def syllogisms(rng: random.Random) -> Problem:
    """三段论: two premises about three kinds, valid or not."""
    a, b, c = rng.sample(KINDS, 3)
    premises, conclusion, valid, steps = rng.choice(
        (
            (f"所有的{a}都是{b}，所有的{b}都是{c}", f"所有的{a}都是{c}", True, "传递成立"),
            (f"所有的{a}都是{b}，所有的{b}都是{c}", f"所有的{c}都是{a}", False, "不能反过来"),
            (f"所有的{a}都是{b}，没有{b}是{c}", f"没有{a}是{c}", True, f"{b}之外才有{c}"),
            (f"有的{a}是{b}，所有的{b}都是{c}", f"有的{a}是{c}", True, f"那些{a}就是{c}"),
            (f"有的{a}是{b}，有的{b}是{c}", f"有的{a}是{c}", False, f"两部分{b}可以不同"),
            (f"没有{a}是{b}，所有的{c}都是{b}", f"没有{a}是{c}", True, f"{c}都在{b}之中"),
            (f"所有的{a}都是{b}，所有的{c}都是{b}", f"有的{a}是{c}", False, "两者可以没有交集"),
        )
    )
    question = f"已知{premises}。能否推出{conclusion}？"
    return _problem("syllogisms", question, "能" if valid else "不能", steps + "。")


def reversals(rng: random.Random) -> Problem:
    """倒写: characters in the other order."""
    text = "".join(rng.choices(CHARACTERS, k=rng.randint(3, 8)))
    steps = "从最后一个字开始：" + "、".join(reversed(text)) + "。"
    return _problem("reversals", f"把“{text}”倒过来写。", text[::-1], steps)


def counting(rng: random.Random) -> Problem:
    """数字: how often a character occurs."""
    letter, *others = rng.sample(CHARACTERS, 4)
    text = "".join(rng.choices([letter, *others], k=rng.randint(5, 12)))
    return _problem("counting", f"“{text}”里有几个“{letter}”？", text.count(letter))


def fractions(rng: random.Random) -> Problem:
    """约分."""
    top, bottom, factor = rng.randint(1, 60), rng.randint(2, 60), rng.randint(2, 30)
    divisor = math.gcd(top, bottom)
    question = f"把分数 {top * factor}/{bottom * factor} 化成最简分数。"
    common = divisor * factor
    answer = f"{top // divisor}/{bottom // divisor}"
    return _problem("fractions", question, answer, f"分子和分母都除以最大公约数 {common}。")


FAMILIES: dict[str, tuple[int, Draw]] = {
    draw.__name__: (weight, draw)
    for weight, draw in (
        (4, sums),
        (2, products),
        (2, remainders),
        (1, divisors),
        (1, equations),
        (4, shopping),
        (3, journeys),
        (1, cages),
        (2, ages),
        (2, discounts),
        (1, rectangles),
        (1, sequences),
        (1, weekdays),
        (2, orders),
        (1, syllogisms),
        (1, reversals),
        (1, counting),
        (1, fractions),
    )
}
