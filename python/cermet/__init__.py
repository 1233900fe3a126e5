# SPDX-License-Identifier: MIT
"""Cermet: lazy arrays, composable transforms and fused kernels for machine learning on Linux.

`cermet.core` is the array library; `cermet.nn`, `cermet.optimizers` and `cermet.utils` are pure
Python on top of its public names. All of them carry the names of MLX 0.32, so a program written
for MLX runs after changing its imports, or unchanged under `python -m cermet.as_mlx`.
"""
