# SPDX-License-Identifier: MIT
"""`python -m cermet.env` prints every environment variable that Cermet reads, with its value."""

import cermet.core as mx

_HEAD = ("variable", "choices", "value", "meaning")


def table():
    """The variables as (variable, choices, value, meaning), all strings."""
    return [tuple(map(str, row)) for row in mx._env_table()]


def format_table(rows):
    """The rows under a head line, in columns."""
    lines = [_HEAD, *(tuple(cell or "-" for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


if __name__ == "__main__":
    print(format_table(table()))
