# SPDX-License-Identifier: MIT
"""tools/check.py on small trees with one breach each, and its finder of functions."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check  # noqa: E402
from cxx_functions import function_sizes, without_comments  # noqa: E402

HEAD = "// SPDX-License-Identifier: MIT\n"

SOURCE = """
namespace a { namespace {
int f(int x) {
  auto lambda = [](int y) { return y; };
  if (x) { return '{'; }
  return lambda(x) + sizeof("}");
}
}  // namespace
template <typename T>
struct S : Base<T> {
  S() : a_(1), b_{2} {}
  bool operator==(const S& other) const { return a_ == other.a_; }
  int a_ = 3, b_{4};
};
const int kTable[] = {1, 2};
/* void not_a_function() { } */
#define MACRO(x) void x() { \\
  }
auto g(const char* text = R"x({ { )x") -> int
{
  return 0;
}
}
"""


def test_functions_are_found_with_their_lines():
    assert list(function_sizes(SOURCE)) == [
        ("f", 3, 5),
        ("S", 11, 1),
        ("operator==", 12, 1),
        ("g", 19, 4),
    ]


def test_comments_go_but_strings_and_lines_stay():
    text = 'a("// no"); // yes\n/* x\n */ b(1\'000);'
    assert without_comments(text) == 'a("// no");       \n    \n    b(1\'000);'


BREACHES = {
    "layers": ("src/kernel/a.cpp", HEAD + '#include "graph/node.h"\n'),
    "file_sizes": ("src/base/a.h", HEAD + "\n" * 300),
    "function_limit": ("src/base/a.cpp", HEAD + "void f() {" + "\n" * 100 + "}\n"),
    "function_spread": ("src/base/a.cpp", HEAD + "void f() {" + "\n" * 60 + "}\n"),
    "heads": ("tools/a.py", "print(1)\n"),
    "unfinished": ("bench/a.cpp", HEAD + "// TO" + "DO\n"),
    "environment": ("src/runtime/a.cpp", HEAD + 'auto x = getenv("HOME");\n'),
    "llvm_includes": ("src/kernel/a.cpp", HEAD + "#include <llvm/IR/Module.h>\n"),
    "first_uses": ("src/base/a.cpp", HEAD + "int f() {\n  static const int x = g();\n}\n"),
    "op_spread": ("src/transform/a.cpp", HEAD + "bool f() { return id == OpId::Sin; }\n"),
    "answers": (
        "src/base/a.cpp",
        HEAD + 'void f() { CERMET_CHECK(ok(";"[0]), value, op, "no"); }\n',
    ),
}


def make_tree(root, files, exemptions=""):
    files = {
        "src/graph/op_list.h": HEAD + "#define OPS(X) X(Sin, sin, unary)\n",
        "src/ops/sin.cpp": HEAD + "const OpRow rows::sin = row(OpId::Sin);  // getenv\n",
        "tools/check_exemptions.txt": exemptions,
        **files,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def broken_rules(root):
    return {rule for rule, places in check.breaches(root)[0].items() if places}


def test_a_clean_tree_passes(tmp_path):
    make_tree(tmp_path, {})
    assert broken_rules(tmp_path) == set()


def test_every_rule_has_a_breach_here():
    assert set(BREACHES) == set(check.RULES)


@pytest.mark.parametrize("rule", BREACHES)
def test_a_breach_is_found_and_can_be_exempted(rule, tmp_path):
    name, text = BREACHES[rule]
    make_tree(tmp_path, {name: text})
    found, _ = check.breaches(tmp_path)
    assert rule in broken_rules(tmp_path)
    place = found[rule][0].split(": ")[0]
    (tmp_path / "tools/check_exemptions.txt").write_text(f"{rule} {place} a reason\n")
    assert rule not in broken_rules(tmp_path)


def test_an_exemption_that_is_not_needed_is_a_breach(tmp_path):
    make_tree(tmp_path, {}, "layers src/base/a.cpp there was a reason\n")
    assert broken_rules(tmp_path) == {"exemptions"}


def test_ops_are_named_where_ops_are_made(tmp_path):
    text = HEAD + "auto x = rows::sin;\n"
    make_tree(tmp_path, {"src/ops/tan.cpp": text, "src/schedule/a.cpp": text})
    assert check.breaches(tmp_path)[0]["op_spread"] == [
        "src/schedule/a.cpp:Sin: rows::sin is named here; only src/ops and its like know ops"
    ]


def test_errors_say_what_would_be_right(tmp_path):
    good = (
        """fail(kind, "op", "{} is ')'; use {}", f("x"), 1); parser.fail(); fail(kind, op, text);"""
    )
    bad = 'f() {\n  fail(kind, "op", "{} is (", f(1, 2));\n  CERMET_CHECK(ok, kind, "a" "b");\n}\n'
    python = """# SPDX-License-Identifier: MIT
raise ValueError(f"[{op}] x is {x}; it must be 1")
raise AttributeError("no x")
raise error
raise ValueError("[op] x is 2")
raise TypeError(f"x is {x}; it must be 1")
"""
    make_tree(
        tmp_path,
        {
            "src/base/a.cpp": HEAD + f"void g() {{ {good} }}\n",
            "python/src/b.cpp": HEAD + bad,
            "python/cermet/c.py": python,
        },
    )
    places = [place.split(": ")[:2] for place in check.breaches(tmp_path)[0]["answers"]]
    assert places == [
        ["python/src/b.cpp", "line 3"],
        ["python/src/b.cpp", "line 4"],
        ["python/cermet/c.py", "line 5"],
        ["python/cermet/c.py", "line 6"],
    ]
