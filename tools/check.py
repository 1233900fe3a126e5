# SPDX-License-Identifier: MIT
"""Checks of the tree that no compiler makes: layers, sizes, heads, op spread, errors.

`python tools/check.py` prints each breach and exits 1 if there is one. Every rule is one function
from the tree to its breaches. What is exempt stands in tools/check_exemptions.txt with its reason;
an exemption that is not needed any more is itself a breach.
"""

import ast
import pathlib
import re
import statistics
import sys

from cxx_functions import function_sizes, without_comments

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = (
    "base kernel codegen runtime graph ops quant fused schedule transform io distributed"
).split()
LLVM_FILES = re.compile(r"src/(codegen/(llvm|micro/)|runtime/loader)[^/]*\.(cpp|h)")
OP_FOLDERS = ("src/ops/", "src/fused/", "src/quant/")
MAX_SOURCE, MAX_HEADER = 800, 300
MAX_FUNCTION, P95_FUNCTION, MEDIAN_FUNCTION = 100, 45, 8
FOLDERS = ("src", "python", "tests", "bench", "examples", "tools", "cmake")
SUFFIXES = {".cpp", ".h", ".py", ".cmake", ".sh"}


class Tree:
    """What is checked, read once: `files` (path relative to the root -> text) and `code`, the same
    without comments, of the C++ that ships."""

    def __init__(self, root):
        self.files = {}
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in SUFFIXES and path.is_file():
                    self.files[path.relative_to(root).as_posix()] = path.read_text()
        self.code = {
            name: without_comments(text)
            for name, text in self.files.items()
            if name.startswith(("src/", "python/src/")) and name.endswith((".cpp", ".h"))
        }

    def sources(self):
        return [(n, t) for n, t in self.code.items() if n.startswith("src/")]


def layers(tree):
    """A file includes only from its own folder or from an earlier one."""
    for name, code in tree.sources():
        folder = name.split("/")[1]
        if folder not in LAYERS:
            if name != "src/cermet.h":
                yield name, f"folder {folder} is none of the layers {' '.join(LAYERS)}"
            continue
        for included in re.findall(r'#include "([^"]+)"', code):
            target = included.split("/")[0]
            if target not in LAYERS or LAYERS.index(target) > LAYERS.index(folder):
                yield name, f"{folder} must not include {included}"


def file_sizes(tree):
    """A source has at most 800 lines, a header 300."""
    for name, text in tree.files.items():
        limit = MAX_HEADER if name.endswith(".h") else MAX_SOURCE
        lines = text.count("\n")
        if lines > limit:
            yield name, f"{lines} lines; at most {limit}"


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def functions(tree):
    """(file, function, line, lines) of everything that ships."""
    for name, code in tree.code.items():
        for function, line, lines in function_sizes(code):
            yield name, function, line, lines
    for name, text in tree.files.items():
        if name.startswith("python/cermet/") and name.endswith(".py"):
            for function, line, lines in python_functions(text):
                yield name, function, line, lines


def function_statistics(tree):
    """(count, median, 95th percentile, largest) of the lines of functions."""
    sizes = sorted(lines for *_, lines in functions(tree)) or [0]
    return len(sizes), statistics.median(sizes), sizes[int(0.95 * (len(sizes) - 1))], sizes[-1]


def function_limit(tree):
    """A function has at most 100 lines."""
    for name, function, line, lines in functions(tree):
        if lines > MAX_FUNCTION:
            yield name, f"line {line}: {function} has {lines} lines; at most {MAX_FUNCTION}"


def function_spread(tree):
    """Over the tree, functions have a median of at most 8 lines and a 95th percentile of 45."""
    _, median, p95, _ = function_statistics(tree)
    if median > MEDIAN_FUNCTION:
        yield "tree", f"the median function has {median} lines; at most {MEDIAN_FUNCTION}"
    if p95 > P95_FUNCTION:
        yield "tree", f"5 % of the functions have more than {p95} lines; at most {P95_FUNCTION}"


def heads(tree):
    """A file says its licence in its first lines, a C++ file and a module also what it is for."""
    for name, text in tree.files.items():
        lines = text.splitlines()[:3]
        if text.strip() and not any("SPDX-License-Identifier: MIT" in line for line in lines):
            yield name, "the head lacks SPDX-License-Identifier: MIT"


def unfinished(tree):
    """Nothing is left for later: an issue or nothing."""
    words = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HA[C]K|NotImplemented[E]rror)\b")
    for name, text in tree.files.items():
        for number, line in enumerate(text.splitlines(), 1):
            if found := words.search(line):
                yield name, f"line {number}: {found[1]}"


def environment(tree):
    """Variables are read in base/env.cpp alone."""
    for name, code in tree.code.items():
        if name != "src/base/env.cpp" and re.search(r"\b(secure_)?getenv\b", code):
            yield name, "reads the environment; add a row to CERMET_ENV in base/env.h"


def llvm_includes(tree):
    """LLVM's headers are seen by the code generator and the loader alone."""
    for name, code in tree.code.items():
        if not LLVM_FILES.fullmatch(name) and re.search(r'#include [<"](llvm|clang)', code):
            yield (
                name,
                "includes LLVM; only codegen/llvm*, codegen/micro/ and runtime/loader* may",
            )


def first_uses(tree):
    """Static variables of functions are constinit (base/lazy.h says why). Those of the code
    generator need not be: a fork waits until it is at rest."""
    static = re.compile(
        r"^[ \t]+static (?!constexpr\b|constinit\b|thread_local\b)([^()\n;{}=]*\w)(?<!_)\s*[=;{]",
        re.M,
    )
    for name, code in tree.sources():
        if not name.startswith(("src/codegen/llvm", "src/codegen/cuda_preamble")):
            for found in static.finditer(code):
                yield name, f"{found[1].split()[-1]} is not constinit; make it a Lazy or a ForkSafe"


def op_spread(tree):
    """An op's row is named in the op list and where ops are made (src/ops, fused, quant: rows,
    builders, rules that build graphs of other ops), nowhere else.
    """
    listed = tree.files.get("src/graph/op_list.h", "")
    ops = re.findall(r"\bX\(([A-Z]\w*), (\w+), \w+\)", re.sub(r"//.*", "", listed))
    by_text = {f"OpId::{op}": op for op, _ in ops} | {f"rows::{name}": op for op, name in ops}
    for name, code in tree.code.items():
        if name == "src/graph/op_list.h" or name.startswith(OP_FOLDERS):
            continue
        for text in sorted(set(re.findall(r"\b(?:OpId|rows)::\w+", code))):
            if op := by_text.get(text):
                yield f"{name}:{op}", f"{text} is named here; only src/ops and its like know ops"


def calls(code, start):
    """(position, text of the arguments) of each call whose beginning matches `start`."""
    tokens = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|[()]')
    for call in re.finditer(start, code):
        depth, end = 1, call.end()
        while depth and (token := tokens.search(code, end)):
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            end = token.end()
        yield call.start(), code[call.end() : end - 1]


def python_errors(text):
    """(line, the parts of the message that are written out) of each error raised with one."""
    kinds = "Import Index Key Overflow Runtime Type Value".split()
    names = {f"{kind}Error" for kind in kinds}
    for node in ast.walk(ast.parse(text)):
        error = node.exc if isinstance(node, ast.Raise) else None
        if isinstance(error, ast.Call) and getattr(error.func, "id", None) in names:
            constants = [n for n in ast.walk(error) if isinstance(n, ast.Constant)]
            yield node.lineno, "".join(c.value for c in constants if isinstance(c.value, str))


def answers(tree):
    """An error reads `[op] what is wrong; what would be right`."""
    for name, code in tree.code.items():
        for position, arguments in calls(code, r"\b(?:CERMET_CHECK|fail)\((?=[^)])"):
            literals = re.findall(r'"((?:\\.|[^"\\\n])*)"', arguments)
            if literals and "; " not in "".join(literals):
                line = code.count("\n", 0, position) + 1
                yield name, f"line {line}: the error does not say after a ; what would be right"
    for name, text in tree.files.items():
        if name.startswith("python/cermet/") and name.endswith(".py"):
            for line, message in python_errors(text):
                if not message.startswith("[") or "; " not in message:
                    yield name, f"line {line}: the error is not `[op] what is wrong; what is right`"


RULES = {
    rule.__name__: rule
    for rule in (
        layers, file_sizes, function_limit, function_spread, heads, unfinished, environment,
        llvm_includes, first_uses, op_spread, answers,
    )
}  # fmt: skip


def read_exemptions(root):
    """{(rule, place): reason}; a line is `rule place reason`."""
    exemptions = {}
    for line in (root / "tools/check_exemptions.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            rule, place, reason = line.split(maxsplit=2)
            exemptions[rule, place] = reason
    return exemptions


def breaches(root):
    """({rule: ["place: what"]}, statistics), less what is exempt; a last rule judges exemptions."""
    tree, exemptions, used = Tree(root), read_exemptions(root), set()
    found = {}
    for name, rule in RULES.items():
        found[name] = []
        for place, what in rule(tree):
            if (name, place) in exemptions:
                used.add((name, place))
            else:
                found[name].append(f"{place}: {what}")
    unused = sorted(set(exemptions) - used)
    found["exemptions"] = [f"{rule} {place}: not needed any more" for rule, place in unused]
    return found, function_statistics(tree)


def report(root=ROOT):
    """Prints the breaches and the sizes; returns (rules kept, rules broken)."""
    found, (count, median, p95, largest) = breaches(root)
    for rule, places in found.items():
        for place in places:
            print(f"[{rule}] {place}")
    print(f"functions: {count}, median {median} lines, p95 {p95}, largest {largest}")
    broken = sum(bool(places) for places in found.values())
    return len(found) - broken, broken


if __name__ == "__main__":
    kept, broken = report()
    print(f"{kept} rules kept, {broken} broken")
    sys.exit(broken != 0)
