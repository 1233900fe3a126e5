# SPDX-License-Identifier: MIT
"""Which declarations of a listing of MLX's C++ API does cermet.h serve?

A listing has a declaration a line, `array mlx::core::name(const array & a, int axis,
StreamOrDevice s = {})`. Each becomes a small function that makes the call, once with every
argument and once without those that have defaults, in one source; the compiler says which lines
do not compile.
"""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "tests/cxx"
HEAD = """#include "cermet.h"
#include <any>
#include <unordered_map>
using namespace cermet;
template <typename T> T&& given();
"""
# What the declarations name in std without its namespace, or as a parameter of a template.
TYPES = {
    r"Dtype::(Category|Kind)\b": r"\1",
    r"\bT\b": "float",
    r"\bU\b": "float",
    r"\bIt\b": "const float *",
    r"\bF\b": "Function",
    r"\bVec\b": "std::vector<int>",
    r"\bArrays &&... outputs": "array a, array b",
    r"(?<!:)\bKeySequence &": "random::KeySequence &",
    r"(?<!:)\bArrayIterator &": "array::ArrayIterator &",
    r"(?<!:)\breference\b": "array",
    r"\bdifference_type diff\b": "int64_t",
}
LITERALS = {"std::initializer_list<int>": "{0, 0}"}


def lines(file):
    """Declarations of a listing, in order."""
    return [
        line
        for line in (FOLDER / file).read_text().splitlines()
        if line.strip() and not line.startswith("# ")
    ]


def split_arguments(text):
    """`a, b<c, d> e` at the commas outside of brackets."""
    depth, parts, start = 0, [], 0
    for i, c in enumerate(text):
        if c in "(<{[":
            depth += 1
        elif c in ")>}]":
            depth -= not (c == ">" and text[i - 1] == "-")
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in [*parts, text[start:]] if p.strip()]


def parameter(text):
    """(type, has a default) of a parameter; its name does not matter."""
    text, _, default = text.partition("=")
    text = text.strip()
    named = re.fullmatch(r"(.*[\s&*>])(\w+)", text)
    if named and named[2] not in ("int", "double", "float", "bool", "Dtype", "Shape", "array"):
        text = named[1].strip()
    return text, bool(default)


def plain(text):
    """The types of a declaration, as cermet's."""
    text = text.replace("mlx::core::", "")
    for name, stands_for in TYPES.items():
        text = re.sub(name, stands_for, text)
    return text


def call_of(declaration):
    """(result type, name, parameters, const) of a function; None: it is no function."""
    declaration = re.sub(r"^template <.*?> (?=\S+ )", "", declaration)
    declaration = re.sub(r"^static ", "", declaration)
    match = re.match(
        r"(.*?)\s*(mlx::core::(?:operator\s*(?:\(\)|[^\s(]+)|\w|::)+)\((.*)$", declaration
    )
    if not match:
        return None
    result, name, rest = match.groups()
    depth, end = 1, 0
    while depth:
        depth += (rest[end] == "(") - (rest[end] == ")")
        end += 1
    arguments = [parameter(p) for p in split_arguments(plain(rest[: end - 1]))]
    return plain(result).strip(), plain(name), arguments, "const" in rest[end:]


def probes(declaration):
    """Statements that compile if the declaration is served."""
    kind = re.match(
        r"(class|struct|enum|using|template <.*?> (?:using|class)|#define)\s", declaration
    )
    if kind:
        name = plain(re.search(r"mlx::core::([\w:]+)|#define (\w+)", declaration)[0]).split()[-1]
        if declaration.startswith("template"):
            return [f"using x = {name}<float>;"]
        probe = [f"using x = {name};"]
        if values := re.search(r"\{(.*)\}", declaration):
            probe += [
                f"auto v{i} = {name}::{v.strip()};" for i, v in enumerate(values[1].split(","))
            ]
        return probe
    call = call_of(declaration)
    if call is None:  # a constant or a member
        name = plain(declaration.split()[-1])
        scope, _, member = name.rpartition("::")
        if scope and re.match(r"[A-Z]|finfo|iinfo", scope.split("::")[-1]):
            return [f"auto x = given<{scope} &>().{member};"]
        return [f"auto x = {name};"]
    result, name, arguments, _ = call
    scope, _, last = name.rpartition("::")
    if last.startswith("operator") and not last.endswith("()"):
        return [operator_probe(result, scope, last[len("operator") :].strip(), arguments)]
    required = sum(not default for _, default in arguments)
    statements = []
    for count in {len(arguments), required}:
        given = ", ".join(value_of(t) for t, _ in arguments[:count])
        if scope and last == scope.split("::")[-1]:
            statements.append(f"{scope} x({given});" if given else f"{scope} x;")
        elif scope and re.match(r"[A-Z]|array$|finfo|iinfo", scope.split("::")[-1]):
            call_text = f"given<{scope} &>().{last}"
            if re.search(r"template", declaration):
                call_text = f"given<{scope} &>().template {last}<float>"
            statements.append(as_result(result, f"{call_text}({given})"))
        else:
            statements.append(as_result(result, f"cermet::{name}({given})"))
    return statements


def value_of(text):
    return LITERALS.get(text, f"given<{text}>()")


def operator_probe(result, scope, symbol, arguments):
    """A use of the operator between its operands."""
    if symbol[0].isalpha():  # a conversion
        return f"{symbol} x = given<{scope}{'<float>' * (scope == 'TypeToDtype')} &>();"
    operands = [value_of(t) for t, _ in arguments]
    if scope:
        operands.insert(0, f"given<{scope} &>()")
    if len(operands) == 1:
        return as_result(result, symbol + operands[0])
    return as_result(result, f"{operands[0]} {symbol} {operands[1]}")


def as_result(result, call):
    if result in ("", "void"):
        return f"(void)({call});"
    if "*" not in result and "ostream" not in result and "KeySequence" not in result:
        result = result.replace(" &", "").replace("const ", "")
    return f"{result} x = {call};"


def source(declarations):
    text = [HEAD]
    for number, declaration in enumerate(declarations, 1):
        for i, statement in enumerate(probes(declaration)):
            text.append(f'#line {number} "api"\nvoid probe_{number}_{i}() {{ {statement} }}')
    return "\n".join(text) + "\n"


def not_served(declarations, folder):
    """Those of the declarations that do not compile, with the first error of each."""
    file = pathlib.Path(folder) / "api.cpp"
    file.write_text(source(declarations))
    command = [
        os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-fmax-errors=0", "-w",
        "-fno-diagnostics-show-caret", f"-I{ROOT}/src", str(file),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    outside = re.findall(r"^(?!api:)\S+: (?:fatal )?error: .*", done.stderr, re.M)
    first = {}
    for number, message in re.findall(r"^api:(\d+):(?:\d+:)? (.*)", done.stderr, re.M):
        first.setdefault(int(number), message)
    if outside and not first:
        raise RuntimeError(done.stderr[:4000])
    return {declarations[n - 1]: message for n, message in sorted(first.items())}
