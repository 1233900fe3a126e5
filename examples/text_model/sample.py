# SPDX-License-Identifier: MIT
"""Writes text with a trained model, one byte at a time: `python sample.py --prompt "import "`."""

import argparse
import sys
import time
from pathlib import Path

import cermet.core as mx
from model import Config, TextModel

PROMPTS = ("def ", "class ", "import ")


def generate(model, prompt, count, temperature=0.7):
    """`count` bytes after the bytes `prompt`, and the bytes made per second.

    The prompt goes through the model once; from then on each step feeds one byte, with the keys
    and values of all former ones in the caches.
    """
    caches = model.new_caches()
    tokens = mx.array([list(prompt)])
    made, begin = [], None
    for _ in range(count):
        logits = model(tokens, caches)[:, -1].astype(mx.float32)
        tokens = mx.random.categorical(logits * (1 / temperature))[:, None]
        mx.eval(tokens)
        made.append(tokens)
        begin = begin or time.perf_counter()  # the prompt's own pass is not counted
    seconds = time.perf_counter() - begin
    text = bytes(mx.concatenate(made, axis=1)[0].tolist())
    return text, (count - 1) / max(seconds, 1e-9)


def show(text):
    """Bytes as text; what is no valid UTF-8 becomes a replacement character."""
    return text.decode("utf-8", errors="replace")


def samples(model, count=240, temperature=0.7, prompts=PROMPTS):
    """[(prompt and what the model wrote after it, bytes per second)]."""
    training = model.training
    model.eval()
    found = []
    for prompt in prompts:
        text, speed = generate(model, prompt.encode(), count, temperature)
        found.append((prompt + show(text), speed))
    model.train(training)
    return found


def load_model(checkpoint, config=None):
    """The model of a checkpoint that train.py wrote."""
    arrays = mx.load(str(checkpoint))
    prefix = "model."
    weights = [(k[len(prefix) :], v) for k, v in arrays.items() if k.startswith(prefix)]
    return TextModel(config or Config()).load_weights(weights)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Write text with a trained model.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of checkpoint.npz")
    parser.add_argument("--prompt", default="def ", help="what the text begins with")
    parser.add_argument("--count", type=int, default=240, help="how many bytes to write")
    parser.add_argument("--temperature", type=float, default=0.7, help="lower is safer")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    checkpoint = args.out / "checkpoint.npz"
    if not checkpoint.exists():
        sys.exit(f"{checkpoint} is not there; train.py writes it")
    mx.random.seed(args.seed)
    model = load_model(checkpoint)
    [(text, speed)] = samples(model, args.count, args.temperature, [args.prompt])
    print(text)
    print(f"\n{speed:.0f} bytes/s", file=sys.stderr)


if __name__ == "__main__":
    main()
