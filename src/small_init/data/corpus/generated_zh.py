"""Chinese problems from the project's own templates: arithmetic, word problems, some reasoning."""

import math
import random

from small_init.data.corpus.generated_zh_words import (
    NAMES,
    chinese_problem,
    counting,
    orders,
    reversals,
    syllogisms,
    weekdays,
)
from small_init.data.corpus.problems import Draw, Problem

GOODS = (
    "铅笔:支 橡皮:块 练习本:本 书包:个 苹果:斤 香蕉:斤 西瓜:个 牛奶:盒 面包:个 鸡蛋:斤 毛巾:条 "
    "杯子:个 足球:个 篮球:个 雨伞:把 帽子:顶 袜子:双 台灯:盏 字典:本 钢笔:支"
).split()
PLACES = "北京 上海 广州 成都 武汉 西安 南京 杭州 重庆 天津 长沙 青岛 昆明 沈阳 郑州 福州".split()
VEHICLES = "汽车 火车 自行车 摩托车 轮船 卡车 公共汽车".split()


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
    return chinese_problem("sums", ask.format(expression), total, "，".join(lines) + "。")


def products(rng: random.Random) -> Problem:
    """乘法, with partial products."""
    left = rng.randrange(2, 10 ** rng.randint(1, 3) + 2)
    right = rng.randrange(2, 10 ** rng.randint(1, 3) + 2)
    parts = [int(digit) * 10**place for place, digit in enumerate(reversed(str(right)))]
    lines = [f"{left} × {part} = {left * part}" for part in parts if part]
    ask = rng.choice(("计算：{}。", "{} 等于多少？", "求 {} 的积。"))
    steps = "，".join(lines) + f"，合起来是 {left * right}。"
    return chinese_problem("products", ask.format(f"{left} × {right}"), left * right, steps)


def remainders(rng: random.Random) -> Problem:
    """带余除法 in a story of handing out."""
    name, (goods, unit) = rng.choice(NAMES), rng.choice(GOODS).split(":")
    people, each, rest = rng.randint(2, 30), rng.randint(2, 30), rng.randint(0, 29)
    rest %= people
    total = people * each + rest
    question = (
        f"{name}把 {total} {unit}{goods}平均分给 {people} 个同学，每人最多分到几{unit}？"
        f"还剩几{unit}？"
    )
    steps = f"{people} × {each} = {people * each}，{total} - {people * each} = {rest}。"
    return chinese_problem("remainders", question, f"每人 {each} {unit}，剩 {rest} {unit}", steps)


def divisors(rng: random.Random) -> Problem:
    """最大公约数 and 最小公倍数, by Euclid."""
    a, b = rng.randint(2, 600), rng.randint(2, 600)
    lines, x, y = [], a, b
    while y:
        lines.append(f"{x} 除以 {y} 余 {x % y}")
        x, y = y, x % y
    steps = "，".join(lines) + f"，所以最大公约数是 {x}"
    if rng.random() < 0.5:
        return chinese_problem("divisors", f"{a} 和 {b} 的最大公约数是多少？", x, steps + "。")
    multiple = a * b // x
    steps += f"，最小公倍数是 {a} × {b} ÷ {x} = {multiple}。"
    return chinese_problem("divisors", f"{a} 和 {b} 的最小公倍数是多少？", multiple, steps)


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
    return chinese_problem("equations", question, x, steps)


def shopping(rng: random.Random) -> Problem:
    """购物: two goods, and the change or the total."""
    name = rng.choice(NAMES)
    (first, unit1), (second, unit2) = (item.split(":") for item in rng.sample(GOODS, 2))
    count1, count2 = rng.randint(2, 12), rng.randint(2, 12)
    price1, price2 = rng.randint(2, 40), rng.randint(2, 40)
    total = count1 * price1 + count2 * price2
    story = (
        f"{name}买了 {count1} {unit1}{first}，每{unit1} {price1} 元，又买了 {count2} "
        f"{unit2}{second}，每{unit2} {price2} 元。"
    )
    steps = (
        f"{first}用去 {count1} × {price1} = {count1 * price1} 元，{second}用去 {count2} × {price2} "
        f"= {count2 * price2} 元，一共 {count1 * price1} + {count2 * price2} = {total} 元"
    )
    if rng.random() < 0.5:
        return chinese_problem("shopping", story + "一共用了多少元？", f"{total} 元", steps + "。")
    paid = (total // 100 + 1) * 100
    steps += f"，{paid} - {total} = {paid - total} 元。"
    question = f"{story}付了 {paid} 元，应找回多少元？"
    return chinese_problem("shopping", question, f"{paid - total} 元", steps)


def journeys(rng: random.Random) -> Problem:
    """行程: one vehicle, or two that meet."""
    start, end = rng.sample(PLACES, 2)
    vehicle, speed, hours = rng.choice(VEHICLES), rng.randint(10, 120), rng.randint(2, 15)
    distance = speed * hours
    if rng.random() < 0.5:
        question = (
            f"一辆{vehicle}从{start}开往{end}，每小时行 {speed} 千米，行了 {hours} 小时，"
            f"一共行了多少千米？"
        ).replace("一辆轮船", "一艘轮船")
        return chinese_problem(
            "journeys", question, f"{distance} 千米", f"{speed} × {hours} = {distance}。"
        )
    other = rng.randint(10, 120)
    both = speed + other
    question = (
        f"甲、乙两车同时从{start}和{end}出发，相向而行。甲车每小时行 {speed} 千米，乙车每小时行 "
        f"{other} 千米，两地相距 {both * hours} 千米，几小时后相遇？"
    )
    steps = f"速度和是 {speed} + {other} = {both}，{both * hours} ÷ {both} = {hours}。"
    return chinese_problem("journeys", question, f"{hours} 小时", steps)


def cages(rng: random.Random) -> Problem:
    """鸡兔同笼."""
    hens, rabbits = rng.randint(1, 60), rng.randint(1, 60)
    heads, legs = hens + rabbits, 2 * hens + 4 * rabbits
    ask = rng.choice(("鸡", "兔"))
    steps = (
        f"假设全是鸡，有 {heads} × 2 = {2 * heads} 条腿，"
        f"少了 {legs} - {2 * heads} = {2 * rabbits} 条，"
        f"所以兔有 {2 * rabbits} ÷ 2 = {rabbits} 只，鸡有 {heads} - {rabbits} = {hens} 只。"
    )
    question = f"笼子里有鸡和兔共 {heads} 只，一共有 {legs} 条腿，{ask}有几只？"
    return chinese_problem("cages", question, f"{hens if ask == '鸡' else rabbits} 只", steps)


def ages(rng: random.Random) -> Problem:
    """年龄: what a difference and a time shift say."""
    older, younger = rng.sample(NAMES, 2)
    age, gap, years = rng.randint(3, 40), rng.randint(1, 30), rng.randint(2, 20)
    question = (
        f"{younger}今年 {age} 岁，{older}比{younger}大 {gap} 岁。{years} 年后，"
        f"{older}和{younger}一共多少岁？"
    )
    total = 2 * age + gap + 2 * years
    steps = (
        f"{older}今年 {age} + {gap} = {age + gap} 岁，{years} 年后两人是 {age + gap + years} 岁和 "
        f"{age + years} 岁，一共 {total} 岁。"
    )
    return chinese_problem("ages", question, f"{total} 岁", steps)


def discounts(rng: random.Random) -> Problem:
    """打折: a price in tens, so that the answer is whole."""
    name, (goods, unit) = rng.choice(NAMES), rng.choice(GOODS).split(":")
    price, tenths, count = rng.randint(1, 60) * 10, rng.randint(5, 9), rng.randint(1, 9)
    one = price * tenths // 10
    question = (
        f"一{unit}{goods}原价 {price} 元，现在打{'零一二三四五六七八九'[tenths]}折，"
        f"{name}买 {count} {unit}要付多少元？"
    )
    steps = f"打折后每{unit} {price} × 0.{tenths} = {one} 元，{one} × {count} = {one * count} 元。"
    return chinese_problem("discounts", question, f"{one * count} 元", steps)


def rectangles(rng: random.Random) -> Problem:
    """长方形: perimeter, area, or a side from the area."""
    width, length = sorted(rng.sample(range(2, 100), 2))
    kind = rng.randrange(3)
    if kind == 0:
        question = f"一个长方形长 {length} 厘米，宽 {width} 厘米，周长是多少厘米？"
        half = length + width
        steps = f"({length} + {width}) × 2 = {half} × 2 = {2 * half}。"
        return chinese_problem("rectangles", question, f"{2 * half} 厘米", steps)
    area = length * width
    if kind == 1:
        question = f"一个长方形长 {length} 厘米，宽 {width} 厘米，面积是多少平方厘米？"
        return chinese_problem(
            "rectangles", question, f"{area} 平方厘米", f"{length} × {width} = {area}。"
        )
    question = f"一个长方形的面积是 {area} 平方厘米，长是 {length} 厘米，宽是多少厘米？"
    return chinese_problem(
        "rectangles", question, f"{width} 厘米", f"{area} ÷ {length} = {width}。"
    )


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
    return chinese_problem("sequences", f"找规律填数：{shown}，下一个数是多少？", terms[5], steps)


def fractions(rng: random.Random) -> Problem:
    """约分."""
    top, bottom, factor = rng.randint(1, 60), rng.randint(2, 60), rng.randint(2, 30)
    divisor = math.gcd(top, bottom)
    question = f"把分数 {top * factor}/{bottom * factor} 化成最简分数。"
    common = divisor * factor
    answer = f"{top // divisor}/{bottom // divisor}"
    return chinese_problem("fractions", question, answer, f"分子和分母都除以最大公约数 {common}。")


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
