# SPDX-License-Identifier: MIT
"""Finds the functions of C++ sources by their braces: enough for sizes, not a parser.

A brace opens a function if it stands in a namespace or a class and follows a parameter list; a
lambda belongs to the function around it. Preprocessor lines are left out, so functions that macros
make are not seen.
"""

import re

_TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"(?P<raw>[^()\s\\]{0,16})\(.*?\)(?P=raw)"
        | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_NAMESPACE = re.compile(r'\bnamespace\b|\bextern\s*"')
_CLASS = re.compile(r"\b(class|struct|union|enum)\b(?!.*\))", re.DOTALL)
_NAME = re.compile(r"([\w:~]+|operator\s*[^\s\w(]+|operator\s*\(\s*\))\s*\(")


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """The text without comments; strings and lines stay."""
    keep = lambda match: _blank(match[0]) if match[0].startswith("/") else match[0]  # noqa: E731
    return _TOKEN.sub(keep, text)


def _skeleton(text):
    text = _TOKEN.sub(lambda match: _blank(match[0]), text)
    return _DIRECTIVE.sub(lambda match: _blank(match[0]), text)


def _kind(header, enclosing):
    """What a brace after this text opens: scope, function or other."""
    if enclosing == "other" or enclosing == "function":
        return "other"
    if _NAMESPACE.search(header):
        return "scope"
    if re.search(r"\)\s*:\s*(?!:)[^;]*[\w>]\s*$", header, re.DOTALL):
        return "member initialiser"
    if _CLASS.search(header):
        return "scope"
    if header.rstrip().endswith("=") or not _NAME.search(header):
        return "other"
    return "function"


def function_sizes(text):
    """Yields (name, first line, lines) of each function, from its first line to its last brace."""
    code = _skeleton(text)
    stack = []  # (kind, header start)
    start = 0
    for match in re.finditer(r"[{};]|\b(?:public|private|protected)\s*:(?!:)", code):
        token, position = match[0], match.start()
        if token == "{":
            header = code[start:position]
            kind = _kind(header, stack[-1][0] if stack else "scope")
            stack.append((kind, start))
            if kind != "member initialiser":
                start = position + 1
        elif token == "}":
            kind, begin = stack.pop() if stack else ("other", 0)
            if kind == "function":
                first = begin + len(code[begin:]) - len(code[begin:].lstrip())
                header = code[first:]
                name = _NAME.search(header)[1]
                line = code.count("\n", 0, first) + 1
                yield name, line, code.count("\n", first, position) + 1
            if kind != "member initialiser":
                start = position + 1
        elif not stack or stack[-1][0] != "member initialiser":
            start = match.end()
