"""What a digest of code sees, and what it leaves."""

import textwrap

import pytest

from small_init.runs import code_meaning
from small_init.runs.code_meaning import Name, reach

BASE = {
    "start": """
        from small_init.middle import shape, SIZE as size

        def main():
            return shape(size)

        def never_called():
            return 1
        """,
    "middle": '''
        """About shapes."""

        import math
        from small_init import leaf

        SIZE = 3

        class Square:
            """A square."""

            def area(self, side, half=False):
                # what a square has
                return leaf.power(side, 2) / (2 if half else 1)

        def shape(side):
            return math.floor(Square().area(side))
        ''',
    "leaf": """
        def power(x, n):
            return x**n

        def other(x):
            return -x
        """,
}


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Writes modules of a package of the name small_init, and digests what `start.main` reaches."""

    def write_and_digest(modules):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name, text in modules.items():
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        monkeypatch.setattr(code_meaning, "PACKAGE", folder)
        return reach([Name("small_init.start", "main")]).digest()

    return write_and_digest


def changed(module, old, new):
    assert BASE[module].count(old) == 1
    return BASE | {module: BASE[module].replace(old, new)}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("middle", '"""A square."""', '"""Four equal sides."""'),
        ("middle", '"""About shapes."""', '"""Something else."""'),
        ("middle", "# what a square has", "# its content"),
        ("middle", "half=False", "half   =   False"),
        ("middle", "            return math.floor(Square().area(side))",
         "            return (\n                math.floor(\n    Square().area(side)))"),
        ("start", "return 1", "return 2"),
        ("leaf", "return -x", "return x"),
    ],
)  # fmt: skip
def test_what_changes_no_number_changes_no_digest(digest, module, old, new):
    assert digest(BASE) == digest(changed(module, old, new))


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("middle", "half=False", "half=True"),
        ("middle", "SIZE = 3", "SIZE = 4"),
        ("middle", "import math", "import cmath as math"),
        ("middle", "side, 2)", "side, 3)"),
        ("leaf", "x**n", "x*n"),
        ("middle", "class Square:", "class Square(leaf.other):"),
        ("middle", "SIZE = 3", 'SIZE = 3\n        print("on import")'),
    ],
)
def test_what_may_change_a_number_does(digest, module, old, new):
    assert digest(BASE) != digest(changed(module, old, new))


def test_moves_change_nothing(digest):
    """A function in another file, a file in another folder, a file cut in two."""
    moved = {
        "start": BASE["start"].replace("small_init.middle", "small_init.shapes.all"),
        "shapes.all": BASE["middle"].replace(
            "from small_init import leaf", "from small_init.shapes import leaf"
        ),
        "shapes.leaf": "def power(x, n):\n    return x**n\n",
        "leaf": "def other(x):\n    return -x\n",
    }
    assert digest(BASE) == digest(moved)
    plain = BASE | {
        "leaf": BASE["leaf"] + "\n        def half(x):\n            return x / 2\n",
        "start": BASE["start"].replace("return shape(size)", "return half(shape(size))").replace(
            "from small_init.middle import shape, SIZE as size",
            "from small_init.leaf import half\n"
            "        from small_init.middle import shape, SIZE as size",
        ),
    }  # fmt: skip
    cut = plain | {
        "leaf": BASE["leaf"],
        "parts": "def half(x):\n    return x / 2\n",
        "start": plain["start"].replace(
            "small_init.leaf import half", "small_init.parts import half"
        ),
    }
    assert digest(plain) == digest(cut) != digest(BASE)


def test_another_function_under_the_same_name_is_seen(digest):
    """`from leaf import other as power` uses names that both stay reached."""
    first = {
        "start": """
            from small_init.leaf import power as f, other as g

            def main():
                return f(2, 3) + g(1)
            """,
        "leaf": BASE["leaf"],
    }
    second = first | {
        "start": first["start"].replace("power as f, other as g", "other as f, power as g")
    }
    assert digest(first) != digest(second)


def test_a_whole_module_that_is_handed_on_counts_in_full(digest):
    handed = BASE | {
        "start": """
            from small_init import leaf

            def main():
                return vars(leaf)
            """
    }
    other = handed | {"leaf": BASE["leaf"].replace("return -x", "return x")}
    assert digest(handed) != digest(other)


def test_imports_for_types_are_not_followed(digest):
    typed = BASE | {
        "start": """
            from typing import TYPE_CHECKING
            from small_init.middle import shape, SIZE as size

            if TYPE_CHECKING:
                from small_init.leaf import other

            def main():
                return shape(size)
            """
    }
    assert digest(typed) == digest(typed | {"leaf": BASE["leaf"].replace("return -x", "return x")})


def test_a_name_that_is_not_there_is_an_error(digest):
    with pytest.raises(ValueError, match="defines no shape"):
        digest(BASE | {"middle": "SIZE = 3\n"})
