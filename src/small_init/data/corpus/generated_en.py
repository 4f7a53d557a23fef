"""English problems: reasoning-gym's generators, their boilerplate removed, worked steps added.

Left out on purpose: `family_relationships`, which answers some questions from the wrong end (the
daughter-in-law is called father-in-law), families of a few hundred questions, and templates of
`gsm_symbolic` that were read and found faulty.
"""

import math
import random
import re
from collections.abc import Callable
from typing import Any

import reasoning_gym

from small_init.data.corpus.problems import Draw, Problem

Item = dict[str, Any]
# Items a family can draw from. They are made when asked for, but gsm_symbolic lists its templates
# for all of them at once, so the number cannot be boundless.
ITEMS = 1_000_000
# Templates of gsm_symbolic in which a word is missing ("for 2 the amount of time", "writes it in
# full 4", "slew 4 as many") or a step is (34=34), whatever the numbers.
FAULTY_TEMPLATES = frozenset({14, 51, 52, 82, 93})
# Instructions about the form of the answer: the form is always the same here.
_BOILERPLATE = re.compile(
    r"\s*(Give (only )?the (result|GCD|simplified fraction|weekday name in full)\b[^.]*\."
    r"|Give your answer in [^.]*\.|Please answer in [^.]*\.|Do not include units\."
    r"|Answer in [A-Z][^.]*\.|\(example: sun -> nus\)(?=:)"
    r"|Answer with [^?]*?\.\)?\.?$|Answer using [^.]*\.|Reply with just [^.]*\."
    r"|State the weekday [^.]*\.|Express the result in [^.]*\.|(Provide|Give) the count [^.]*\."
    r"|Write out the full weekday name\.|Your task is to [^.]*\.\s*(Now, )?"
    r"|If the target base is [^.]*\.\s*(Now, )?)"
)


def _chain_sum(item: Item) -> str:
    first, *rest = item["metadata"]["expression"].split(" ")
    total, lines = int(first), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        value = total + int(term) if sign == "+" else total - int(term)
        lines.append(f"{total} {sign} {term} = {value}")
        total = value
    return ", ".join(lines) + "."


def _product(item: Item) -> str:
    left, right = (int(term) for term in item["metadata"]["expression"].split(" * "))
    parts = [int(digit) * 10**place for place, digit in enumerate(reversed(str(right)))]
    lines = [f"{left} * {part} = {left * part}" for part in parts if part]
    return ", ".join(lines) + f"; together {left * right}."


def _gcd(item: Item) -> str:
    a, b = item["metadata"]["numbers"]
    lines = []
    while b:
        lines.append(f"{a} mod {b} = {a % b}")
        a, b = b, a % b
    return ", ".join(lines) + f". The last divisor is {a}."


def _lcm(item: Item) -> str:
    a, b = item["metadata"]["numbers"]
    divisor = math.gcd(a, b)
    return (
        f"The greatest common divisor is {divisor}, and {a} / {divisor} * {b} = {a * b // divisor}."
    )


def _count_bits(item: Item) -> str:
    return f"{item['metadata']['number']} is {item['metadata']['binary']} in binary."


def _spell_backward(item: Item) -> str:
    return "The letters from the end: " + " ".join(item["answer"]) + "."


def _gsm(item: Item) -> str:
    work = item["metadata"]["answer_cot"].split("####")[0].strip()
    return " ".join(line.rstrip(".") + "." for line in work.split("\n") if line.strip())


def _fraction(item: Item) -> str:
    numbers = [int(number) for number in re.findall(r"\d+", item["question"])]
    if len(numbers) != 2:
        return ""
    return f"Both are divisible by {math.gcd(*numbers)}."


def _chain_question(item: Item) -> str:
    return f"Calculate {item['metadata']['expression']}."


def _syllogism_question(item: Item) -> str:
    meta = item["metadata"]
    return (
        f"{meta['premise1']}. {meta['premise2']}. Does it follow that "
        f"{meta['conclusion'][0].lower()}{meta['conclusion'][1:]}? Yes or no?"
    )


def _plain_question(item: Item) -> str:
    question = " ".join(_BOILERPLATE.sub(" ", item["question"].replace("\n", " ")).split())
    return question[0].upper() + question[1:].replace(" :", ":")


def _no_steps(_: Item) -> str:
    return ""


def _family(
    name: str,
    question: Callable[[Item], str] = _plain_question,
    steps: Callable[[Item], str] = _no_steps,
    **config: Any,
) -> Draw:
    """Draw from reasoning-gym's data set `name`; item i of a data set depends on seed and i."""
    dataset = reasoning_gym.create_dataset(name, seed=0, size=ITEMS, **config)

    def draw(rng: random.Random) -> Problem:
        item = dataset[rng.randrange(ITEMS)]
        answer = str(item["answer"]).strip().strip("$")
        return Problem(question(item), answer, "en", name, steps(item))

    return draw


def _stories() -> Draw:
    """Draw from gsm_symbolic, item by item, those of faulty templates passed over."""
    dataset = reasoning_gym.create_dataset("gsm_symbolic", seed=0, size=ITEMS)

    def draw(rng: random.Random) -> Problem:
        at = rng.randrange(ITEMS)
        while dataset.task_indices[at] in FAULTY_TEMPLATES:
            at = rng.randrange(ITEMS)
        item = dataset[at]
        return Problem(_plain_question(item), str(item["answer"]), "en", "gsm_symbolic", _gsm(item))

    return draw


FAMILIES: dict[str, tuple[int, Draw]] = {
    "chain_sum": (4, _family("chain_sum", _chain_question, _chain_sum, max_terms=5, max_digits=3)),
    "products": (2, _family("products", steps=_product, max_digits=3)),
    "gsm_symbolic": (6, _stories()),
    "leg_counting": (2, _family("leg_counting", min_animals=1, max_animals=4)),
    "gcd": (1, _family("gcd", steps=_gcd)),
    "lcm": (1, _family("lcm", steps=_lcm)),
    "count_bits": (1, _family("count_bits", steps=_count_bits, max_n=100_000)),
    "spell_backward": (1, _family("spell_backward", steps=_spell_backward)),
    "syllogism": (2, _family("syllogism", _syllogism_question)),
    "simple_equations": (1, _family("simple_equations", max_terms=3)),
    "fraction_simplification": (
        1,
        _family("fraction_simplification", steps=_fraction, styles=("plain",), max_factor=30),
    ),
    "letter_counting": (1, _family("letter_counting")),
    "base_conversion": (1, _family("base_conversion")),
    "calendar_arithmetic": (1, _family("calendar_arithmetic")),
    "time_intervals": (1, _family("time_intervals", task_types=["time", "time_seconds", "date"])),
}
