"""Chinese word problems from the project's own templates: goods, ways, ages, comparisons."""

import random
from itertools import pairwise

from small_init.data.corpus.problems import Problem

NAMES = (
    "小明 小红 小刚 小丽 小华 小军 小芳 小强 小兰 小龙 王伟 李娜 张敏 刘洋 陈静 杨帆 赵磊 黄婷 "
    "周杰 吴倩 徐亮 孙悦 马超 朱琳 胡斌 郭雪 林涛 何欣 高翔 罗敏"
).split()
GOODS = (
    "铅笔:支 橡皮:块 练习本:本 书包:个 苹果:斤 香蕉:斤 西瓜:个 牛奶:盒 面包:个 鸡蛋:斤 毛巾:条 "
    "杯子:个 足球:个 篮球:个 雨伞:把 帽子:顶 袜子:双 台灯:盏 字典:本 钢笔:支"
).split()
PLACES = "北京 上海 广州 成都 武汉 西安 南京 杭州 重庆 天津 长沙 青岛 昆明 沈阳 郑州 福州".split()
VEHICLES = "汽车 火车 自行车 摩托车 轮船 卡车 公共汽车".split()


def _problem(family: str, question: str, answer: object, steps: str = "") -> Problem:
    return Problem(question, str(answer), "zh", family, steps)


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
    return _problem("remainders", question, f"每人 {each} {unit}，剩 {rest} {unit}", steps)


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
        return _problem("shopping", story + "一共用了多少元？", f"{total} 元", steps + "。")
    paid = (total // 100 + 1) * 100
    steps += f"，{paid} - {total} = {paid - total} 元。"
    question = f"{story}付了 {paid} 元，应找回多少元？"
    return _problem("shopping", question, f"{paid - total} 元", steps)


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
        return _problem(
            "journeys", question, f"{distance} 千米", f"{speed} × {hours} = {distance}。"
        )
    other = rng.randint(10, 120)
    both = speed + other
    question = (
        f"甲、乙两车同时从{start}和{end}出发，相向而行。甲车每小时行 {speed} 千米，乙车每小时行 "
        f"{other} 千米，两地相距 {both * hours} 千米，几小时后相遇？"
    )
    steps = f"速度和是 {speed} + {other} = {both}，{both * hours} ÷ {both} = {hours}。"
    return _problem("journeys", question, f"{hours} 小时", steps)


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
    return _problem("cages", question, f"{hens if ask == '鸡' else rabbits} 只", steps)


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
    return _problem("ages", question, f"{total} 岁", steps)


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
    return _problem("discounts", question, f"{one * count} 元", steps)


def orders(rng: random.Random) -> Problem:
    """传递关系: three or four people compared, out of order."""
    more, less = rng.choice((("高", "矮"), ("重", "轻"), ("大", "小")))
    what = {"高": "最高", "重": "最重", "大": "年龄最大"}[more]
    least = {"矮": "最矮", "轻": "最轻", "小": "年龄最小"}[less]
    people = rng.sample(NAMES, rng.randint(3, 4))
    facts = [
        f"{a}比{b}{more}" if rng.random() < 0.5 else f"{b}比{a}{less}" for a, b in pairwise(people)
    ]
    rng.shuffle(facts)
    top = rng.random() < 0.5
    steps = f"从{more}到{less}依次是" + "、".join(people) + "。"
    question = "，".join(facts) + f"。谁{what if top else least}？"
    return _problem("orders", question, people[0 if top else -1], steps)
