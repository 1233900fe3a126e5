# SPDX-License-Identifier: MIT
"""Loss functions. `reduction`: "none" gives one loss per entry, "mean" and "sum" a scalar."""

import math
from typing import Literal, get_args

import cermet.core as mx
from cermet.arguments import names_errors, require, require_arrays, require_numbers

Reduction = Literal["none", "mean", "sum"]


def _reduce(loss, reduction):
    if reduction == "none":
        return loss
    if reduction == "mean":
        return mx.mean(loss)
    if reduction == "sum":
        return mx.sum(loss)
    raise ValueError(
        f"[losses] reduction is {reduction!r}; it must be one of {', '.join(get_args(Reduction))}"
    )


def _same_shape(op, **arrays):
    """An error unless all are arrays of one shape."""
    require_arrays(op, **arrays)
    if len({a.shape for a in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items())
        raise ValueError(f"[{op}] the shapes differ: {shapes}; they must be equal")


def _weighted(op, loss, weights):
    if weights is None:
        return loss
    _same_shape(op, weights=weights, loss=loss)
    return weights * loss


def _at(op, scores, classes, axis):
    """The score of each class along `axis`, which the result lacks."""
    with mx._meant(op):
        return mx.take_along_axis(scores, mx.expand_dims(classes, axis), axis).squeeze(axis)


@names_errors
def cross_entropy(logits, targets, weights=None, axis=-1, label_smoothing=0.0, reduction="none"):
    """-Σ p·log_softmax(logits) along `axis`, which the result lacks.

    `targets` are class indices (`logits`' shape without `axis`) or probabilities p (`logits`'
    shape). `label_smoothing` s in [0, 1) mixes p with s of the uniform distribution. `weights`
    has the shape of the loss.
    """
    require_arrays("cross_entropy", logits=logits, targets=targets)
    require("cross_entropy", "in [0, 1)", lambda s: 0 <= s < 1, label_smoothing=label_smoothing)
    ndim = logits.ndim
    in_axes = f"an axis of the logits, in [{-ndim}, {ndim})"
    require("cross_entropy", in_axes, lambda a: -ndim <= a < ndim, axis=axis)
    as_probabilities = targets.ndim == logits.ndim
    expected = list(logits.shape)
    if not as_probabilities:
        expected.pop(axis)
    if list(targets.shape) != expected:
        raise ValueError(
            f"[cross_entropy] targets {targets.shape} for logits {logits.shape}; indices need "
            f"the logits' shape without axis {axis}, probabilities the same shape"
        )
    if not as_probabilities and not mx.issubdtype(targets.dtype, mx.integer):
        raise TypeError(
            f"[cross_entropy] targets {targets.shape} of dtype {targets.dtype}; class indices must "
            f"be integers, probabilities have the logits' shape {logits.shape}"
        )
    is_last = axis in (-1, logits.ndim - 1) and mx.issubdtype(logits.dtype, mx.floating)
    if not as_probabilities and is_last and label_smoothing == 0:
        loss = mx.fast.cross_entropy(logits, targets).astype(logits.dtype)
        return _reduce(_weighted("cross_entropy", loss, weights), reduction)
    if as_probabilities:
        # So that a shift of all logits changes nothing, even if the probabilities' sum is not 1.
        logits = logits - mx.stop_gradient(mx.max(logits, axis=axis, keepdims=True))
        score = mx.sum(logits * targets, axis=axis)
    else:
        score = _at("cross_entropy", logits, targets, axis)
    total = mx.logsumexp(logits, axis=axis)
    if label_smoothing > 0:
        score = (1 - label_smoothing) * score + label_smoothing * mx.mean(logits, axis=axis)
    return _reduce(_weighted("cross_entropy", total - score, weights), reduction)


@names_errors
def binary_cross_entropy(inputs, targets, weights=None, with_logits=True, reduction="mean"):
    """-(t·log(p) + (1 - t)·log(1 - p)), with p = sigmoid(inputs) or, without `with_logits`,
    p = inputs and each logarithm at least -100.
    """
    _same_shape("binary_cross_entropy", inputs=inputs, targets=targets)
    if with_logits:
        loss = mx.logaddexp(0.0, inputs) - inputs * targets
    else:
        log_p = mx.maximum(mx.log(inputs), -100)
        log_not_p = mx.maximum(mx.log(1 - inputs), -100)
        loss = -(targets * log_p + (1 - targets) * log_not_p)
    return _reduce(_weighted("binary_cross_entropy", loss, weights), reduction)


@names_errors
def l1_loss(predictions, targets, reduction="mean"):
    """|predictions - targets|."""
    _same_shape("l1_loss", predictions=predictions, targets=targets)
    return _reduce(mx.abs(predictions - targets), reduction)


@names_errors
def mse_loss(predictions, targets, reduction="mean"):
    """(predictions - targets)²."""
    _same_shape("mse_loss", predictions=predictions, targets=targets)
    return _reduce(mx.square(predictions - targets), reduction)


@names_errors
def nll_loss(inputs, targets, axis=-1, reduction="none"):
    """-inputs[targets] along `axis`: log-probabilities and class indices."""
    require_arrays("nll_loss", inputs=inputs, targets=targets)
    return _reduce(-_at("nll_loss", inputs, targets, axis), reduction)


@names_errors
def gaussian_nll_loss(inputs, targets, vars, full=False, eps=1e-6, reduction="mean"):
    """(log(v) + (inputs - targets)²/v)/2 with v = max(vars, eps); `full` adds log(2π)/2."""
    _same_shape("gaussian_nll_loss", inputs=inputs, targets=targets, vars=vars)
    require_numbers("gaussian_nll_loss", eps=eps)
    variance = mx.maximum(vars, eps)
    loss = 0.5 * (mx.log(variance) + mx.square(targets - inputs) / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


@names_errors
def kl_div_loss(inputs, targets, axis=-1, reduction="none"):
    """Σ exp(targets)·(targets - inputs) along `axis`; both are log-probabilities."""
    return _reduce(mx.sum(mx.exp(targets) * (targets - inputs), axis), reduction)


@names_errors
def smooth_l1_loss(predictions, targets, beta=1.0, reduction="mean"):
    """d²/(2·beta) where d = |predictions - targets| < beta, else d - beta/2; with beta 0, d."""
    _same_shape("smooth_l1_loss", predictions=predictions, targets=targets)
    require("smooth_l1_loss", "a number of at least 0", lambda b: b >= 0, beta=beta)
    d = mx.abs(predictions - targets)
    if beta == 0:
        return _reduce(d, reduction)
    loss = mx.where(d < beta, 0.5 * mx.square(d) / beta, d - 0.5 * beta)
    return _reduce(loss, reduction)


@names_errors
def triplet_loss(
    anchors, positives, negatives, axis=-1, p=2, margin=1.0, eps=1e-6, reduction="none"
):
    """max(‖anchors - positives‖ - ‖anchors - negatives‖ + margin, 0), p-norms along `axis`."""

    require("triplet_loss", "a number above 0", lambda p: p > 0, p=p)

    def distance(other):
        powers = mx.power(mx.abs(anchors - other), p)
        return mx.power(mx.sum(powers, axis) + eps, 1 / p)

    loss = mx.maximum(distance(positives) - distance(negatives) + margin, 0)
    return _reduce(loss, reduction)


@names_errors
def hinge_loss(inputs, targets, reduction="none"):
    """max(1 - inputs·targets, 0), with targets -1 or 1."""
    return _reduce(mx.maximum(1 - inputs * targets, 0), reduction)


@names_errors
def huber_loss(inputs, targets, delta=1.0, reduction="none"):
    """d²/2 where d = |inputs - targets| <= delta, else delta·(d - delta/2)."""
    require_numbers("huber_loss", delta=delta)
    d = mx.abs(inputs - targets)
    loss = mx.where(d <= delta, 0.5 * mx.square(d), delta * (d - 0.5 * delta))
    return _reduce(loss, reduction)


@names_errors
def log_cosh_loss(inputs, targets, reduction="none"):
    """log(cosh(inputs - targets))."""
    errors = inputs - targets
    return _reduce(mx.logaddexp(errors, -errors) - math.log(2), reduction)


@names_errors
def cosine_similarity_loss(x1, x2, axis=1, eps=1e-8, reduction="none"):
    """x1·x2 / max(‖x1‖·‖x2‖, eps) along `axis`."""
    norms = [mx.sqrt(mx.sum(mx.square(x), axis=axis)) for x in (x1, x2)]
    similarity = mx.sum(x1 * x2, axis=axis) / mx.maximum(norms[0] * norms[1], eps)
    return _reduce(similarity, reduction)


@names_errors
def margin_ranking_loss(inputs1, inputs2, targets, margin=0.0, reduction="none"):
    """max(-targets·(inputs1 - inputs2) + margin, 0), with targets -1 or 1."""
    _same_shape("margin_ranking_loss", inputs1=inputs1, inputs2=inputs2, targets=targets)
    return _reduce(mx.maximum(margin - targets * (inputs1 - inputs2), 0), reduction)
