# SPDX-License-Identifier: MIT
"""The text: the source of the running Python's standard library, as bytes.

Which file is validation depends on its name alone, so the split is the same wherever the files
are. The yardsticks say how well simpler means predict the same text.
"""

import gzip
import sysconfig
import zlib
from pathlib import Path

import numpy as np

SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}


def source_files(root=None):
    """{relative path: content} of the `.py` files below `root`, by default the standard library."""
    root = Path(root or sysconfig.get_path("stdlib"))
    found = {}
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if path.is_file() and not SKIPPED_FOLDERS.intersection(relative.parts[:-1]):
            found[relative.as_posix()] = path.read_bytes()
    return found


def is_validation(relative_path):
    """One file in twenty, chosen by its path."""
    return zlib.crc32(relative_path.encode()) % 20 == 0


def load(root=None):
    """(training text, validation text), uint8 arrays."""
    parts = {False: [], True: []}
    for path, content in sorted(source_files(root).items()):
        parts[is_validation(path)].append(content)
    return tuple(np.frombuffer(b"\n".join(parts[kind]), np.uint8) for kind in (False, True))


def training_batch(text, step, seed, batch, context):
    """The batch of a step: bytes (batch, context) and the bytes that follow each, int32.

    It depends on the arguments alone: a resumed run goes on where the first one stopped.
    """
    starts = np.random.default_rng((seed, step)).integers(0, len(text) - context, batch)
    return _windows(text, starts, context)


def validation_batches(text, count, batch, context):
    """`count` batches of windows spread evenly over the text, the same each time."""
    starts = np.linspace(0, len(text) - context - 1, count * batch).astype(np.int64)
    return [_windows(text, part, context) for part in starts.reshape(count, batch)]


def _windows(text, starts, context):
    window = text[starts[:, None] + np.arange(context + 1)].astype(np.int32)
    return window[:, :-1], window[:, 1:]


def conditional_entropy(text, previous):
    """Bits per byte of the text, given the `previous` bytes before each: what an ideal table of
    counts of this very text would reach.
    """
    code = np.zeros(len(text) - previous, np.int64)
    for i in range(previous):
        code = code * 256 + text[i : len(text) - previous + i]
    _, context, context_counts = np.unique(code, return_inverse=True, return_counts=True)
    joint, joint_counts = np.unique(context * 256 + text[previous:], return_counts=True)
    share = joint_counts / context_counts[joint // 256]
    return float(-(joint_counts * np.log2(share)).sum() / len(code))


def gzip_bits(text):
    """Bits per byte of the text compressed by gzip at its best level."""
    return 8 * len(gzip.compress(text.tobytes(), 9)) / len(text)


def yardsticks(text):
    """{name: bits per byte} to hold the model's validation figure against."""
    return {
        "one previous byte": conditional_entropy(text, 1),
        "two previous bytes": conditional_entropy(text, 2),
        "gzip -9": gzip_bits(text),
    }
