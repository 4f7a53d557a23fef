"""Chinese problems about words, order and days rather than amounts."""

import random
from itertools import pairwise

from small_init.data.corpus.problems import Problem

NAMES = (
    "小明 小红 小刚 小丽 小华 小军 小芳 小强 小兰 小龙 王伟 李娜 张敏 刘洋 陈静 杨帆 赵磊 黄婷 "
    "周杰 吴倩 徐亮 孙悦 马超 朱琳 胡斌 郭雪 林涛 何欣 高翔 罗敏"
).split()
WEEKDAYS = "一二三四五六日"
KINDS = "医生 老师 司机 歌手 农民 画家 学生 木匠 律师 厨师 船员 诗人 商人 邮递员".split()
CHARACTERS = "春夏秋冬山水风云花鸟鱼虫天地日月星光东西南北江河湖海松竹梅兰金木火土"


def chinese_problem(family: str, question: str, answer: object, steps: str = "") -> Problem:
    return Problem(question, str(answer), "zh", family, steps)


def weekdays(rng: random.Random) -> Problem:
    """星期推算."""
    today, days = rng.randrange(7), rng.randint(2, 400)
    later = (today + days) % 7
    question = f"今天是星期{WEEKDAYS[today]}，再过 {days} 天是星期几？"
    steps = f"{days} 除以 7 余 {days % 7}，从星期{WEEKDAYS[today]}往后数 {days % 7} 天。"
    return chinese_problem("weekdays", question, f"星期{WEEKDAYS[later]}", steps)


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
    return chinese_problem("orders", question, people[0 if top else -1], steps)


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
    return chinese_problem("syllogisms", question, "能" if valid else "不能", steps + "。")


def reversals(rng: random.Random) -> Problem:
    """倒写: characters in the other order."""
    text = "".join(rng.choices(CHARACTERS, k=rng.randint(3, 8)))
    steps = "从最后一个字开始：" + "、".join(reversed(text)) + "。"
    return chinese_problem("reversals", f"把“{text}”倒过来写。", text[::-1], steps)


def counting(rng: random.Random) -> Problem:
    """数字: how often a character occurs."""
    letter, *others = rng.sample(CHARACTERS, 4)
    text = "".join(rng.choices([letter, *others], k=rng.randint(5, 12)))
    return chinese_problem("counting", f"“{text}”里有几个“{letter}”？", text.count(letter))
