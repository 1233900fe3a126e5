# SPDX-License-Identifier: MIT
"""The pages of docs/ say what is so: the table of ops is that of the extension, examples give
what they show. A block ```python runs with those above it on its page; what follows `# ->` on
a line is what that line's expression prints as, and `# raises Error: text` what it raises.
"""

import ast
import pathlib
import re
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import ops_page  # noqa: E402
import own_process  # noqa: E402

PAGES = sorted(p.name for p in (ROOT / "docs").glob("*.md") if "```python" in p.read_text())


def test_the_table_of_ops_is_up_to_date():
    kept = (ROOT / "docs/ops.md").read_text()
    assert kept == ops_page.page(), "run tools/ops_page.py"


def run_block(code, names, where):
    lines = code.splitlines()
    for node in ast.parse(code).body:
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        last = lines[node.end_lineno - 1]
        shown = re.search(r"# (->|raises) (.*)$", last)
        place = f"{where}, line {node.lineno}: {text}"
        if shown and shown[1] == "raises":
            kind, _, message = shown[2].partition(": ")
            with pytest.raises(Exception, match=re.escape(message)) as caught:
                exec(text, names)
            assert kind in [c.__name__ for c in type(caught.value).__mro__], place
        elif shown:
            value = eval(compile(ast.Expression(node.value), where, "eval"), names)
            assert str(value).split() == shown[2].split(), place
        else:
            exec(compile(ast.Module([node], []), where, "exec"), names)


def run_page(page):
    text, names = (ROOT / "docs" / page).read_text(), {}
    for block in re.finditer(r"```python\n(.*?)```", text, re.S):
        line = text[: block.start()].count("\n") + 1
        run_block(block[1], names, f"{page}:{line}")


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page, tmp_path):
    """With the settings that a user has: at the first run ever, and at one that finds kernels."""
    script = f"""
        import sys
        sys.path.insert(0, {str(HERE)!r})
        import test_docs
        test_docs.run_page({page!r})
    """
    for _ in range(2):
        own_process.run(script, CERMET_TIER="auto", CERMET_CACHE_DIR=str(tmp_path))


def test_every_page_is_listed():
    listed = set(re.findall(r"\(docs/([\w.]+)\)", (ROOT / "README.md").read_text()))
    assert {p.name for p in (ROOT / "docs").glob("*.md")} <= listed
