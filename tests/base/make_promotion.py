# SPDX-License-Identifier: MIT
"""Writes promotion.txt: the promotion of dtypes as the wheel mlx==0.32.4 does it.

Run `python tests/base/make_promotion.py > tests/base/promotion.txt` where that wheel is installed.
One line per left dtype: its name, its promotion with each dtype in the same order, and its
promotion with the Python scalars True, 1, 1.5 and 1j.
"""

import mlx.core as mx

NAMES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 "
    "float16 bfloat16 float32 float64 complex64"
).split()
SCALARS = (True, 1, 1.5, 1j)


def array_of(name):
    return mx.zeros((1,), getattr(mx, {"bool": "bool_"}.get(name, name)))


def name_of(array):
    return str(array.dtype).removeprefix("mlx.core.")


mx.set_default_device(mx.cpu)
for left in NAMES:
    row = [name_of(array_of(left) + array_of(right)) for right in NAMES]
    row += [name_of(array_of(left) + scalar) for scalar in SCALARS]
    print(left, *row)
