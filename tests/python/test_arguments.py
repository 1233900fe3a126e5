# SPDX-License-Identifier: MIT
"""Arguments of layers, losses, optimizers, schedules and trees that cannot be right: the error says
which, its value, and what it must be. Those at the border of what is right are taken.
"""

import re

import cermet.core as mx
import cermet.nn as nn
import cermet.optimizers as optim
import cermet.utils as utils
import pytest

X = mx.zeros((2, 3))
NAMES = {"mx": mx, "nn": nn, "optim": optim, "utils": utils, "losses": nn.losses, "init": nn.init}
NAMES |= {"x": X, "seq": mx.zeros((2, 4, 6)), "linear": nn.Linear(2, 1), "nan": float("nan")}

WRONG = r"""
nn.Linear(-1, 2) | ValueError | [Linear] input_dims is -1; it must be an int of at least 1
nn.Linear(0, 2) | ValueError | [Linear] input_dims is 0;
nn.Linear(2, -1) | ValueError | [Linear] output_dims is -1; it must be an int of at least 0
nn.Linear(2.5, 1) | TypeError | [Linear] input_dims is 2.5; it must be an int of at least 1
nn.Linear('a', 1) | TypeError | [Linear] input_dims is 'a';
nn.Bilinear(0, 1, 1) | ValueError | [Bilinear] input1_dims is 0;
nn.Embedding(2, 0) | ValueError | [Embedding] dims is 0;
nn.Embedding(-2, 3) | ValueError | [Embedding] num_embeddings is -2;
nn.RMSNorm(3, eps=-1) | ValueError | [RMSNorm] eps is -1; it must be a number of at least 0
nn.LayerNorm(-3) | ValueError | [LayerNorm] dims is -3;
nn.InstanceNorm(3)(x) | ValueError | [InstanceNorm] the input has 2 axes; it must have at least 3
nn.GroupNorm(0, 4) | ValueError | [GroupNorm] num_groups is 0;
nn.GroupNorm(3, 4) | ValueError | [GroupNorm] num_groups is 3; it must be a divisor of dims, 4
nn.GroupNorm(2, 4)(mx.zeros((4,))) | ValueError | [GroupNorm] the input has 1 axes;
nn.BatchNorm(3, momentum=5) | ValueError | [BatchNorm] momentum is 5; it must be in [0, 1]
nn.RNN(2, 0) | ValueError | [RNN] hidden_size is 0;
nn.GRU(2, -1) | ValueError | [GRU] hidden_size is -1;
nn.LSTM(-2, 1) | ValueError | [LSTM] input_size is -2;
nn.RNN(2, 3)(mx.zeros((2,))) | ValueError | [RNN] the input has 1 axes; it must have at least 2
nn.LSTM(2, 3)(mx.zeros((2,))) | ValueError | [LSTM] the input has 1 axes;
nn.RoPE(3) | ValueError | [RoPE] dims is 3; it must be even
nn.RoPE(4, base=0) | ValueError | [RoPE] base is 0; it must be a number above 0
mx.fast.rope(seq, 4, base=-1) | ValueError | [rope] base is -1; it must be > 0
mx.fast.rms_norm(x, None, -1) | ValueError | [rms_norm] eps is -1; it must be at least 0
mx.fast.layer_norm(x, None, None, nan) | ValueError | [layer_norm] eps is nan; it must be at least 0
nn.SinusoidalPositionalEncoding(5) | ValueError | [SinusoidalPositionalEncoding] dims is 5;
nn.SinusoidalPositionalEncoding(4, min_freq=0) | ValueError | min_freq is 0; it must be a number
nn.ALiBi.create_alibi_slope(0) | ValueError | [ALiBi] num_heads is 0;
nn.ALiBi()(x) | ValueError | [ALiBi] the scores have shape (2, 3); it must be (batch, heads,
nn.MultiHeadAttention(4, 0) | ValueError | [MultiHeadAttention] num_heads is 0;
nn.MultiHeadAttention(4, 3) | ValueError | dims is 4; it must be a multiple of the 3 heads
nn.MultiHeadAttention(6, 2, value_dims=3) | ValueError | value_dims is 3; it must be a multiple
nn.MultiHeadAttention(3, 1)(x, x, x) | ValueError | the input has shape (2, 3); it must be (batch,
nn.TransformerEncoder(-1, 6, 2) | ValueError | [TransformerEncoder] num_layers is -1;
nn.TransformerEncoder(1, 6, 2, activation='relu') | TypeError | activation is 'relu'; it must be
nn.TransformerDecoder(1, 6, 2, mlp_dims=-2) | ValueError | [Linear] output_dims is -2;
nn.Dropout('a') | TypeError | [Dropout] p is 'a'; it must be in [0, 1)
nn.Dropout(nan) | ValueError | [Dropout] p is nan;
nn.Sequential([nn.ReLU()]) | TypeError | [Sequential] module 0 is [ReLU()]; it must be callable
nn.PReLU(0) | ValueError | [PReLU] num_parameters is 0;
nn.CELU(0) | ValueError | [CELU] alpha is 0; it must be a number other than 0
nn.celu(x, 0) | ValueError | [celu] alpha is 0;
losses.cross_entropy(x, [1, 1]) | TypeError | [cross_entropy] targets is [1, 1]; it must be an array
losses.cross_entropy(x, mx.array([1, 1]), axis=5) | ValueError | axis is 5; it must be an axis of
losses.cross_entropy(x, mx.array([1, 1]), label_smoothing=2) | ValueError | label_smoothing is 2;
losses.mse_loss(x, 3) | TypeError | [mse_loss] targets is 3; it must be an array
losses.nll_loss(3, x) | TypeError | [nll_loss] inputs is 3; it must be an array
losses.gaussian_nll_loss(x, x, x, eps=-1) | ValueError | [gaussian_nll_loss] eps is -1;
losses.smooth_l1_loss(x, x, beta=-1) | ValueError | beta is -1; it must be a number of at least 0
losses.huber_loss(x, x, delta=-1) | ValueError | [huber_loss] delta is -1;
losses.triplet_loss(x, x, x, p=0) | ValueError | [triplet_loss] p is 0; it must be a number above 0
init.normal()(3) | TypeError | [init.normal] a is 3; it must be an array
init.glorot_uniform()(mx.zeros((3,))) | ValueError | the array has 1 axes; it must have at least 2
nn.value_and_grad(3, print) | TypeError | [value_and_grad] model is of type int; it must be
nn.value_and_grad(linear, 3) | TypeError | [value_and_grad] fn is 3; it must be callable
linear.load_weights([1, 2]) | TypeError | [Module.load_weights] what was given, of type list,
linear.save_weights(3) | TypeError | [Module.save_weights] file is 3; it must be a path
linear.freeze(keys=3) | TypeError | [Module.freeze] keys is 3; it must be a name, several, or None
linear.freeze(keys='x', strict=True) | KeyError | Linear has no member 'x'; it has weight, bias
linear.update({'weight': [1]}) | ValueError | [Module.update]
linear.update([1]) | ValueError | [Module.update] Linear has not the form list
nn.Sequential(linear).update({'layers': [{}, {}]}) | ValueError | list has 1 items, not 2; give as
optim.SGD(nan) | ValueError | [SGD] learning_rate is nan; it must be a finite number, or a function
optim.SGD(.1, momentum=-1) | ValueError | [SGD] momentum is -1; it must be a number of at least 0
optim.SGD(.1, weight_decay='a') | TypeError | [SGD] weight_decay is 'a';
optim.RMSprop(.1, alpha=2) | ValueError | [RMSprop] alpha is 2; it must be in [0, 1]
optim.AdaDelta(.1, rho=2) | ValueError | [AdaDelta] rho is 2;
optim.Adam(.1, betas=(.9,)) | ValueError | betas is (0.9,); it must be two numbers in [0, 1)
optim.Adam(.1, betas=.9) | TypeError | [Adam] betas is 0.9;
optim.AdamW(.1, weight_decay=-1) | ValueError | [AdamW] weight_decay is -1;
optim.Adamax(.1, betas=(1, 1)) | ValueError | [Adamax] betas is (1, 1);
optim.Lion(.1, betas=(2, 3)) | ValueError | [Lion] betas is (2, 3);
optim.Adafactor(relative_step=False) | ValueError | there is no learning_rate and relative_step is
optim.Adafactor(eps=3) | TypeError | [Adafactor] eps is 3; it must be two numbers of at least 0
optim.Adafactor(clip_threshold=0) | ValueError | [Adafactor] clip_threshold is 0;
optim.Muon(.1, ns_steps=-1) | ValueError | [Muon] ns_steps is -1;
optim.MultiOptimizer([3]) | ValueError | [MultiOptimizer] optimizers is [3]; it must be a list of
optim.clip_grad_norm({'a': x}, -1) | ValueError | [clip_grad_norm] max_norm is -1;
optim.cosine_decay(.1, 0) | ValueError | decay_steps is 0; it must be a number of at least 1
optim.cosine_decay('a', 5) | TypeError | [cosine_decay] init is 'a'; it must be a finite number
optim.exponential_decay(.1, -1) | ValueError | [exponential_decay] decay_rate is -1;
optim.step_decay(.1, .5, 0) | ValueError | [step_decay] step_size is 0;
optim.linear_schedule(.1, nan, 5) | ValueError | [linear_schedule] end is nan;
optim.linear_schedule(.1, .2, 0) | ValueError | [linear_schedule] steps is 0;
nn.Linear(mx.array([2, 3]), 1) | TypeError | [Linear] input_dims is of type array; it must be an int
nn.ReLU()(x, x) | TypeError | ReLU.__call__() takes 2 positional arguments but 3 were given
optim.join_schedules(1, [1]) | TypeError | [join_schedules] schedules is 1; it must be a list
optim.join_schedules([3], []) | TypeError | [join_schedules] schedule 0 is 3; it must be callable
optim.join_schedules([abs] * 3, [5, 2]) | ValueError | boundaries is [5, 2]; it must be ascending
optim.SGD(.1).update(linear, {'wieght': x}) | ValueError | 'wieght' has a gradient and is no
optim.SGD(.1).update(linear, {'weight': x}) | ValueError | shape (2, 3); it must be the
optim.SGD(.1).update(linear, {'weight': 3}) | TypeError | the gradient of weight is 3; it must be
optim.SGD(.1).update(linear, 3) | TypeError | [SGD] gradients is 3; it must be a dict of gradients
optim.SGD(.1).update(3, {}) | TypeError | [SGD] model is 3; it must be a Module
optim.Adam(.1).update(nn.Sequential(linear), {'layers': [{}, {'bias': x}]}) | ValueError | 'layers.1
optim.Adam(.1).init(3) | TypeError | [Adam] parameters is 3; it must be a dict of parameters
setattr(optim.Adam(.1), 'state', 3) | TypeError | [Adam] state is 3; it must be a dict
setattr(optim.Adam(.1), 'learning_rate', nan) | ValueError | [Adam] learning_rate is nan;
optim.Optimizer().update(linear, {'weight': mx.zeros((1, 2))}) | TypeError | no rule updates a
utils.tree_map(max, {'a': 1}, {'b': 1}) | KeyError | a further tree lacks 'a', which the first has;
utils.tree_map(max, [1, 2], [1]) | IndexError | a further tree lacks 1, which the first has; it has
utils.tree_map(max, {'a': 1}, 3) | TypeError | has 'a' where a further one is of type int;
utils.tree_map_with_path(print, [1, 2], [1]) | IndexError | [tree_map_with_path] a further tree
utils.tree_unflatten([1, 2]) | TypeError | [tree_unflatten] what was given, of type list,
utils.tree_unflatten(3) | TypeError | [tree_unflatten] what was given, of type int,
""".strip().splitlines()


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments_are_named(line):
    code, kind, text = line.split(" | ")
    with pytest.raises(Exception) as caught:
        eval(code, dict(NAMES))
    said = caught.value.args[0]
    assert type(caught.value).__name__ == kind, said
    assert re.match(r"\[[\w.]+\] \S.*; \S", said, re.DOTALL) or "positional" in said, said
    assert text in said


RIGHT = """
nn.Linear(2, 0)(mx.zeros((3, 2)))
nn.Embedding(0, 3)
nn.LayerNorm(3, eps=0)(mx.array([1.0, 2, 3]))
nn.GroupNorm(4, 4)(mx.zeros((2, 4)))
nn.BatchNorm(3, momentum=1)(x)
nn.RNN(0, 2)(mx.zeros((3, 0)))
nn.Dropout(0)(x)
nn.celu(x, mx.array(1.0))
nn.TransformerEncoder(0, 6, 2)(seq, None)
losses.cross_entropy(x, mx.array([1, 1, 1]), axis=-2)
losses.huber_loss(x, x, delta=0)
init.he_normal()(mx.zeros((2, 0)))
init.glorot_uniform()(mx.zeros((0, 0)))
optim.SGD(mx.array(0.1), momentum=0)
optim.SGD(-0.1)
optim.Adam(lambda step: 0.1 * step, betas=[0, 0], eps=0)
optim.Lion(.1, betas=(1, 1))
optim.Adafactor(eps=(0, 0), beta_1=0)
optim.cosine_decay(.1, 1)(mx.array(1))
optim.step_decay(.1, 0, 1)(mx.array(1))
optim.join_schedules([abs, abs], [0])
optim.clip_grad_norm({}, 0)
optim.SGD(.1).update(linear, {})
""".strip().splitlines()


@pytest.mark.parametrize("code", RIGHT)
def test_arguments_at_the_border_are_taken(code):
    eval(code, dict(NAMES))


def test_a_refused_update_changes_nothing():
    model, optimizer = nn.Linear(2, 1), optim.Adam(0.1)
    before = {name: value for name, value in utils.tree_flatten(model.parameters())}
    with pytest.raises(ValueError, match="biass"):
        optimizer.update(model, {"weight": mx.ones((1, 2)), "biass": mx.ones((1,))})
    after = dict(utils.tree_flatten(model.parameters()))
    assert all(after[name] is value for name, value in before.items())
    assert optimizer.step.item() == 0
