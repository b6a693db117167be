"""Random programs that end soon: what small models write, and odder things."""

import re
from random import Random

VALUES = {
    "number": [
        *("0", "1", "2", "3", "7", "10", "12", "100", "-4", "123456789012345678"),
        *("0.5", "2.5", "1.25", "1e3"),
    ],
    "text": ["'a'", "'pear'", "'Ann has 3'", "''", "'x,y,z'", "'Grüße'"],
    "list": ["[]", "[1, 2, 3]", "[2.5, -1]", "list(range(5))", "[7, 7, 0]"],
    "truth": ["True", "False"],
}
FORMS = {
    "number": [
        *(f"({{number}} {op} {{number}})" for op in ("+", "-", "*", "/", "//", "%")),
        *(f"({{number}} {op} {{number}})" for op in ("+", "-", "*", "/")),
        *("-{number}", "abs({number})", "int({number})", "float({number})", "round({number})"),
        *("round({number}, 2)", "len({text})", "len({list})", "sum({list})", "max({list})", "min({list})"),
        *(
            "max({number}, {number})",
            "min({number}, {number})",
            "{list}[0]",
            "{list}[-1]",
            "divmod({number}, 7)[1]",
        ),
        *(
            "half({number}, y={number})",
            "({number} if {truth} else {number})",
            "int({truth})",
            "pow({number}, 2)",
        ),
        *("math.sqrt(abs({number}))", "math.floor({number})", "math.ceil({number})", "math.trunc({number})"),
        *(
            "math.factorial(min({list} + [6]))",
            "math.gcd(12, int({number}))",
            "{text}.count('a')",
            "{text}.find('r')",
        ),
        *(
            "sum(k * k for k in {list} if k > 1)",
            "sum(1 for k in {list} if {truth})",
            "int('0' + str({truth} + 0))",
        ),
        *("{'a': {number}, 'b': {number}}['b']", "{'a': 1}.get('c', {number})", "next(iter({list}), 9)"),
        *("len(set({list}))", "len(str({number}))", "ord({text}[0])", "(lambda k: k + 1)({number})"),
        *("{list}.index(2)", "math.log(1 + abs({number}))", "({number}) ** 2", "2 ** len({list})"),
    ],
    "text": [
        *(
            "({text} + {text})",
            "str({number})",
            "{text}.upper()",
            "{text}.title()",
            "{text}.replace('a', 'bc')",
        ),
        *("{text}[::-1]", "{text}[1:3]", "{text} * 2", "'-'.join(map(str, {list}))", "{text}.strip('x,')"),
        *("f'{{number}}'", "f'{{number}:.2f}'", "f'{{number}:>12}'", "f'{{number}:,}'", "str({list})"),
        *("f'{{text}!r:<9}'", "'%d of %s' % (3, {text})", "'{}: {:.1f}'.format({text}, {number})"),
        *(
            "{text}.split(',')[0]",
            "{text}.zfill(6)",
            "repr({truth})",
            "chr(97 + len({list}))",
            "str({truth})",
        ),
        *("' '.join(sorted({text}.split()))", "f'{{number}:e}'", "f'{{number}:08.3f}'", "{text}.lower()"),
    ],
    "list": [
        *("sorted({list})", "{list}[::-1]", "({list} + {list})", "[k * 2 for k in {list}]", "{list}[1:]"),
        *(
            "[{number}, {number}]",
            "list(map(abs, {list}))",
            "[k for k in {list} if k > {number}]",
            "{list} * 2",
        ),
        *(
            "list(filter(None, {list}))",
            "sorted({list}, key=lambda k: -k)",
            "[a + b for a, b in zip({list}, {list})]",
        ),
        *(
            "[i for i, k in enumerate({list})]",
            "list(dict.fromkeys({list}))",
            "[len(w) for w in {text}.split()]",
        ),
        *(
            "sorted(set({list}), reverse=True)",
            "list(itertools.accumulate({list}))",
            "list(range(len({text})))",
        ),
    ],
    "truth": [
        *(f"({{number}} {op} {{number}})" for op in ("<", "<=", ">", ">=", "==", "!=")),
        *(
            "({truth} and {truth})",
            "({truth} or {truth})",
            "(not {truth})",
            "({number} in {list})",
            "bool({text})",
        ),
        *("all(k > 0 for k in {list})", "any({list})", "{text}.startswith('p')", "isinstance({number}, int)"),
        *(
            "(1 < {number} <= 9)",
            "({list} == {list})",
            "({text} < {text})",
            "{text}.isdigit()",
            "bool({list})",
        ),
    ],
}
KINDS = ("number", "number", "number", "text", "list", "truth")


class Programmer:
    """Writes random programs, each a function ``solution()``.

    Most expressions have the types that they need; a few have others, or fail for their values.
    """

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.names: dict[str, list[str]] = {kind: [] for kind in VALUES}

    def program(self) -> str:
        """Return a program whose loops are short and whose numbers stay small."""
        begin = [f"{kind}_0 = {self.expression(kind, 0)}" for kind in VALUES]
        self.names = {kind: [f"{kind}_0"] for kind in VALUES}
        body = [*begin, *self.block(self.draw.randint(2, 7), 0)]
        result = [self.expression(self.draw.choice(KINDS), 1) for _ in range(self.draw.randint(1, 3))]
        value = result[0] if len(result) == 1 else f"({', '.join(result)})"
        head = [
            "import math",
            "import itertools",
            "",
            "def half(x, y=2):",
            "    return x / y",
            "",
            "def solution():",
        ]
        return "\n".join([*head, *(f"    {line}" for line in body), f"    return {value}"])

    def block(self, count: int, depth: int) -> list[str]:
        return [line for _ in range(count) for line in self.statement(depth)]

    def statement(self, depth: int) -> list[str]:
        kind, form = self.draw.choice(KINDS), self.draw.randrange(12 if depth < 2 else 7)
        if form < 4:
            value = self.expression(kind, 3)
            return [f"{self.name(kind, depth)} = {value}"]
        if form == 4:
            return [
                f"{self.known('number')} {self.draw.choice(['+', '-', '*'])}= {self.expression('number', 1)}"
            ]
        if form == 5:
            a, b = self.known("number"), self.known("number")
            return [f"{a}, {b} = {b}, {self.expression('number', 1)}"]
        if form == 6:
            return [f"{self.known('list')} = {self.known('list')} + [{self.expression('number', 1)}]"]
        inner = [f"    {line}" for line in self.block(self.draw.randint(1, 2), depth + 1)]
        if form == 7:
            return [f"for i in range({self.draw.randint(0, 4)}):", *inner]
        if form == 8:
            return [f"for k in {self.known('list')}[:3]:", f"    {self.known('number')} += k", *inner]
        if form == 9:
            end = [f"    {line}" for line in self.block(1, depth + 1)]
            return [f"if {self.expression('truth', 2)}:", *inner, "else:", *end]
        if form == 10:
            return [
                "try:",
                *inner,
                "except (TypeError, ValueError, ZeroDivisionError, IndexError):",
                "    pass",
            ]
        return [f"steps{depth} = 0", f"while steps{depth} < 3:", f"    steps{depth} += 1", *inner]

    def name(self, kind: str, depth: int) -> str:
        """A name for a value; a new one only where it is certainly bound."""
        if depth or self.draw.random() < 0.4:
            return self.known(kind)
        name = f"{kind}_{len(self.names[kind])}"
        self.names[kind].append(name)
        return name

    def known(self, kind: str) -> str:
        return self.draw.choice(self.names[kind])

    def expression(self, kind: str, depth: int) -> str:
        if self.draw.random() < 0.01:
            kind = self.draw.choice(KINDS)
        if depth == 0:
            return self.draw.choice([*VALUES[kind], *self.names[kind] * 3])
        form = self.draw.choice(FORMS[kind])
        return re.sub(r"{(number|text|list|truth)}", lambda part: self.expression(part[1], depth - 1), form)
