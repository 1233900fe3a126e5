# SPDX-License-Identifier: MIT
"""Optimizers.

An optimizer's state is a tree: "step" (uint64), "learning_rate" and other scheduled settings, and
beside them a tree like the parameters' with a dict of arrays for each parameter. Nothing else
changes during training, so `state` can be an input and output of `mx.compile`, and be saved.
In the formulas g is the gradient, p the parameter, lr the learning rate, all in g's dtype.
"""

import math
from functools import reduce
from operator import add

import cermet.core as mx
from cermet.arguments import (
    require,
    require_arrays,
    require_callable,
    require_numbers,
    require_sizes,
    require_type,
)
from cermet.utils import tree_flatten, tree_map, tree_merge, tree_unflatten


class Optimizer:
    """Base of the optimizers; a subclass defines `apply_single` and, if a parameter has state,
    `init_single`.

    `schedulers`: a dict from a state's name to a function of the step that gives its value.
    """

    def __init__(self, schedulers=None):
        self._initialized = False
        self._state = {"step": mx.array(0, mx.uint64)}
        self._schedulers = dict(schedulers or {})

    def update(self, model, gradients):
        """Take one step: replace the model's parameters by the updated ones."""
        require_type(type(self).__name__, "a Module", dict, model=model)
        model.update(self.apply_gradients(gradients, model))

    def init(self, parameters):
        """Make the state of each parameter in the tree that has none yet.

        Only needed to have the state before the first step; `apply_gradients` does it otherwise.
        """
        require_type(type(self).__name__, "a dict of parameters", dict, parameters=parameters)
        for name, subtree in parameters.items():
            self._state[name] = self._init_below(subtree, self._state.get(name))
        self._initialized = True

    def _init_below(self, parameters, state):
        if isinstance(parameters, dict):
            state = {} if state is None else state
            for key, subtree in parameters.items():
                state[key] = self._init_below(subtree, state.get(key))
            return state
        if isinstance(parameters, (list, tuple)):
            state = list(state or [])
            state += [None] * (len(parameters) - len(state))
            return [self._init_below(p, s) for p, s in zip(parameters, state, strict=False)]
        if isinstance(parameters, mx.array) and not state:
            state = {}
            self.init_single(parameters, state)
        return state

    def init_single(self, parameter, state):
        """Fill the dict `state` for one parameter; here with nothing."""

    def apply_gradients(self, gradients, parameters):
        """The updated parameters, as a tree like `gradients`; `parameters` (a tree or a model)
        may hold more. Advances the state by one step.
        """
        require_type(type(self).__name__, "a dict of gradients", dict, gradients=gradients)
        _check_gradients(type(self).__name__, gradients, parameters)
        if not self._initialized:
            self.init(gradients)
        for name, schedule in self._schedulers.items():
            self.state[name] = schedule(self.step)
        self.state["step"] = self.step + 1
        return tree_map(self.apply_single, gradients, parameters, self.state)

    def apply_single(self, gradient, parameter, state):
        """The updated parameter; changes the dict `state` of this parameter.

        Raises TypeError in a class that defines no rule.
        """
        raise TypeError(
            f"[{type(self).__name__}] no rule updates a parameter; use SGD, Adam or another "
            "subclass of Optimizer, or define apply_single"
        )

    @property
    def state(self):
        """The whole state as a tree; see the head of this module."""
        return self._state

    @state.setter
    def state(self, state):
        require_type(type(self).__name__, "a dict", dict, state=state)
        self._initialized = False
        self._state = state

    @property
    def step(self):
        """The number of steps taken, a uint64 array."""
        return self.state["step"]

    @property
    def learning_rate(self):
        """The learning rate of the last step (before the first: of that one), an array."""
        return self.state["learning_rate"]

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        self._require("a finite number", math.isfinite, learning_rate=learning_rate)
        self.state["learning_rate"] = mx.array(learning_rate)

    def _maybe_schedule(self, name, value):
        """Put the setting `name` into the state: a number, an array or a function of the step."""
        if callable(value):
            self._schedulers[name] = value
            value = value(self.step)
        self._require(
            "a finite number, or a function of the step that gives one",
            math.isfinite,
            **{name: value},
        )
        self.state[name] = mx.array(value)

    def _require(self, wanted, test, **values):
        require(type(self).__name__, wanted, test, **values)

    def _require_least(self, least, **numbers):
        require_numbers(type(self).__name__, least, **numbers)

    def _require_rates(self, **rates):
        self._require("in [0, 1]", lambda rate: 0 <= rate <= 1, **rates)

    def _require_pair(self, wanted, test, **pairs):
        """Each is two numbers of which `test` is true."""

        def holds(pair):
            first, second = pair
            return test(first) and test(second)

        self._require(f"two numbers {wanted}", holds, **pairs)


def _keys(tree):
    if isinstance(tree, dict):
        return list(tree)
    return range(len(tree)) if isinstance(tree, (list, tuple)) else ()


def _check_gradients(op, gradients, parameters, path=()):
    """An error unless each gradient is an array with a parameter of its shape in its place."""
    there = _keys(parameters)
    for key in _keys(gradients):
        name = ".".join(map(str, (*path, key)))
        if key not in there:
            names = ", ".join(map(str, there)) or "none"
            raise ValueError(
                f"[{op}] {name!r} has a gradient and is no parameter; there are {names}"
            )
        gradient, parameter = gradients[key], parameters[key]
        if isinstance(gradient, (dict, list, tuple)):
            _check_gradients(op, gradient, parameter, (*path, key))
            continue
        require_arrays(
            op, **{f"the gradient of {name}": gradient, f"the parameter {name}": parameter}
        )
        if gradient.shape != parameter.shape:
            raise ValueError(
                f"[{op}] the gradient of {name} has shape {gradient.shape}; "
                f"it must be the parameter's, {parameter.shape}"
            )


class MultiOptimizer(Optimizer):
    """Several optimizers, each for a part of the parameters.

    A parameter goes to the first optimizer whose filter `(path, gradient) -> bool` is true, or
    else to the last one, which has no filter. The state is {"states": [their states]}.
    """

    def __init__(self, optimizers, filters=()):
        super().__init__()
        self._require(
            "a list of optimizers",
            lambda given: len(given) and all(isinstance(o, Optimizer) for o in given),
            optimizers=optimizers,
        )
        require_callable("MultiOptimizer", **{f"filter {i}": f for i, f in enumerate(filters)})
        if len(filters) != len(optimizers) - 1:
            raise ValueError(
                f"[MultiOptimizer] {len(filters)} filters for {len(optimizers)} optimizers; "
                "there must be one for each but the last"
            )
        self._state = {}
        self.optimizers = list(optimizers)
        self.filters = [*filters, lambda path, gradient: True]

    def _parts(self, tree):
        """The tree of each optimizer's share."""
        shares = [[] for _ in self.optimizers]
        for path, value in tree_flatten(tree):
            chosen = next(i for i, wants in enumerate(self.filters) if wants(path, value))
            shares[chosen].append((path, value))
        return [tree_unflatten(share) if share else {} for share in shares]

    def init(self, parameters):
        for optimizer, part in zip(self.optimizers, self._parts(parameters), strict=True):
            optimizer.init(part)
        self._initialized = True

    def apply_gradients(self, gradients, parameters):
        updated = {}
        for optimizer, part in zip(self.optimizers, self._parts(gradients), strict=True):
            if part:
                updated = tree_merge(updated, optimizer.apply_gradients(part, parameters))
        return updated

    @property
    def state(self):
        return {"states": [optimizer.state for optimizer in self.optimizers]}

    @state.setter
    def state(self, state):
        states = state.get("states")
        if states is None or len(states) != len(self.optimizers):
            raise ValueError(
                f"[MultiOptimizer] a state with {0 if states is None else len(states)} 'states'; "
                f"it must have {len(self.optimizers)}, one for each optimizer"
            )
        for optimizer, part in zip(self.optimizers, states, strict=True):
            optimizer.state = part

    @property
    def step(self):
        return self.optimizers[0].step

    @property
    def learning_rate(self):
        """The first optimizer's; setting it sets every optimizer's."""
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        for optimizer in self.optimizers:
            optimizer.learning_rate = learning_rate


class SGD(Optimizer):
    """Gradient descent: g += weight_decay·p; v' = momentum·v + (1 - dampening)·g;
    p' = p - lr·v', or with `nesterov` p - lr·(g + momentum·v').
    """

    def __init__(
        self, learning_rate, momentum=0.0, weight_decay=0.0, dampening=0.0, nesterov=False
    ):
        super().__init__()
        self._require_least(0, momentum=momentum, weight_decay=weight_decay)
        self._require("a finite number", math.isfinite, dampening=dampening)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                f"[SGD] nesterov with momentum {momentum} and dampening {dampening}; "
                "it needs a momentum above 0 and no dampening"
            )
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.dampening = dampening
        self.nesterov = nesterov

    def init_single(self, parameter, state):
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        if self.momentum <= 0:
            return parameter - lr * gradient
        v = self.momentum * state["v"] + (1 - self.dampening) * gradient
        state["v"] = v
        return parameter - lr * (gradient + self.momentum * v if self.nesterov else v)


class RMSprop(Optimizer):
    """v' = alpha·v + (1 - alpha)·g²; p' = p - lr·g/(√v' + eps) (Tieleman and Hinton 2012)."""

    def __init__(self, learning_rate, alpha=0.99, eps=1e-8):
        super().__init__()
        self._require_rates(alpha=alpha)
        self._require_least(0, eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.alpha = alpha
        self.eps = eps

    def init_single(self, parameter, state):
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        v = self.alpha * state["v"] + (1 - self.alpha) * mx.square(gradient)
        state["v"] = v
        return parameter - lr * gradient / (mx.sqrt(v) + self.eps)


class Adagrad(Optimizer):
    """v' = v + g²; p' = p - lr·g/(√v' + eps) (Duchi et al. 2011)."""

    def __init__(self, learning_rate, eps=1e-8):
        super().__init__()
        self._require_least(0, eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps

    def init_single(self, parameter, state):
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        v = state["v"] + mx.square(gradient)
        state["v"] = v
        return parameter - lr * gradient / (mx.sqrt(v) + self.eps)


class AdaDelta(Optimizer):
    """v' = rho·v + (1 - rho)·g²; d = g·√(u + eps)/√(v' + eps); u' = rho·u + (1 - rho)·d²;
    p' = p - lr·d (Zeiler 2012).
    """

    def __init__(self, learning_rate, rho=0.9, eps=1e-6):
        super().__init__()
        self._require_rates(rho=rho)
        self._require_least(0, eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.rho = rho
        self.eps = eps

    def init_single(self, parameter, state):
        state["v"] = mx.zeros_like(parameter)
        state["u"] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        v = self.rho * state["v"] + (1 - self.rho) * mx.square(gradient)
        d = mx.sqrt(state["u"] + self.eps) / mx.sqrt(v + self.eps) * gradient
        state["v"] = v
        state["u"] = self.rho * state["u"] + (1 - self.rho) * mx.square(d)
        return parameter - lr * d


class Adam(Optimizer):
    """m' = b1·m + (1 - b1)·g; v' = b2·v + (1 - b2)·g²; p' = p - lr·m'/(√v' + eps), with
    (b1, b2) = betas (Kingma and Ba 2015).

    `bias_correction` divides m' by 1 - b1^step and v' by 1 - b2^step.
    """

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8, bias_correction=False):
        super().__init__()
        self._require_pair("in [0, 1)", lambda b: 0 <= b < 1, betas=betas)
        self._require_least(0, eps=eps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas = betas
        self.eps = eps
        self.bias_correction = bias_correction

    def init_single(self, parameter, state):
        state["m"] = mx.zeros_like(parameter)
        state["v"] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        b1, b2 = self.betas
        m = b1 * state["m"] + (1 - b1) * gradient
        v = b2 * state["v"] + (1 - b2) * mx.square(gradient)
        state["m"], state["v"] = m, v
        if not self.bias_correction:
            lr = self.learning_rate.astype(gradient.dtype)
            return parameter - lr * m / (mx.sqrt(v) + self.eps)
        lr = (self.learning_rate / (1 - b1**self.step)).astype(gradient.dtype)
        v_scale = mx.rsqrt(1 - b2**self.step).astype(gradient.dtype)
        return parameter - lr * m / (mx.sqrt(v) * v_scale + self.eps)


class AdamW(Adam):
    """Adam on p·(1 - lr·weight_decay) (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        learning_rate,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        bias_correction=False,
    ):
        super().__init__(learning_rate, betas, eps, bias_correction)
        self._require_least(0, weight_decay=weight_decay)
        self.weight_decay = weight_decay

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        decayed = parameter * (1 - lr * self.weight_decay)
        return super().apply_single(gradient, decayed, state)


class Adamax(Adam):
    """m' as in Adam; v' = max(b2·v, |g|); p' = p - lr·m'/(v' + eps) (Kingma and Ba 2015)."""

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(learning_rate, betas, eps)

    def init_single(self, parameter, state):
        super().init_single(parameter, state)

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        b1, b2 = self.betas
        m = b1 * state["m"] + (1 - b1) * gradient
        v = mx.maximum(b2 * state["v"], mx.abs(gradient))
        state["m"], state["v"] = m, v
        return parameter - lr * m / (v + self.eps)


class Lion(Optimizer):
    """c = b1·m + (1 - b1)·g; m' = b2·m + (1 - b2)·g; p' = p·(1 - lr·weight_decay) - lr·sign(c)
    (Chen et al. 2023). Wants a learning rate 3 to 10 times smaller than Adam's.
    """

    def __init__(self, learning_rate, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__()
        self._require_pair("in [0, 1]", lambda b: 0 <= b <= 1, betas=betas)
        self._require_least(0, weight_decay=weight_decay)
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas = betas
        self.weight_decay = weight_decay

    def init_single(self, parameter, state):
        state["m"] = mx.zeros_like(parameter)

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        b1, b2 = self.betas
        c = b1 * state["m"] + (1 - b1) * gradient
        state["m"] = b2 * state["m"] + (1 - b2) * gradient
        if self.weight_decay > 0:
            parameter = parameter * (1 - lr * self.weight_decay)
        return parameter - lr * mx.sign(c)


class Adafactor(Optimizer):
    """Adam-like with second moments kept as row and column means for parameters of two or more
    axes (Shazeer and Stern 2018, Algorithm 4).

    `eps`: added to g², and the least parameter scale. `relative_step` takes the learning rate
    min(10⁻², 1/√step) (with `warmup_init` min(10⁻⁶·step, 1/√step)) instead of `learning_rate`;
    `scale_parameter` multiplies it by the parameter's root mean square.
    """

    def __init__(
        self,
        learning_rate=None,
        eps=(1e-30, 1e-3),
        clip_threshold=1.0,
        decay_rate=-0.8,
        beta_1=None,
        weight_decay=0.0,
        scale_parameter=True,
        relative_step=True,
        warmup_init=False,
    ):
        super().__init__()
        self._require_pair("of at least 0", lambda e: e >= 0, eps=eps)
        self._require("a number above 0", lambda c: c > 0, clip_threshold=clip_threshold)
        self._require("a number of at most 0", lambda d: d <= 0, decay_rate=decay_rate)
        self._require("None or in [0, 1]", lambda b: b is None or 0 <= b <= 1, beta_1=beta_1)
        self._require_least(0, weight_decay=weight_decay)
        if learning_rate is None and not relative_step:
            raise ValueError(
                "[Adafactor] there is no learning_rate and relative_step is False; give one of them"
            )
        if learning_rate is not None:
            self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps
        self.clip_threshold = clip_threshold
        self.decay_rate = decay_rate
        self.beta_1 = beta_1
        self.weight_decay = weight_decay
        self.scale_parameter = scale_parameter
        self.relative_step = relative_step
        self.warmup_init = warmup_init

    def init_single(self, parameter, state):
        shape, dtype = parameter.shape, parameter.dtype
        if parameter.ndim >= 2:
            state["exp_avg_sq_row"] = mx.zeros(shape[:-1], dtype=dtype)
            state["exp_avg_sq_col"] = mx.zeros((*shape[:-2], shape[-1]), dtype=dtype)
        else:
            state["exp_avg_sq"] = mx.zeros_like(parameter)
        if self.beta_1 is not None:
            state["exp_avg"] = mx.zeros_like(parameter)

    def _rate(self, parameter):
        if self.relative_step:
            least = 1e-6 * self.step if self.warmup_init else 1e-2
            rate = mx.minimum(least, mx.rsqrt(self.step))
        else:
            rate = self.learning_rate
        rate = rate.astype(parameter.dtype)
        if self.scale_parameter:
            rate = rate * mx.maximum(self.eps[1], _rms(parameter))
        return rate

    def _normalized(self, gradient, state):
        """g over the root of its running mean square."""
        keep = (1.0 - self.step**self.decay_rate).astype(gradient.dtype)
        squared = mx.square(gradient) + self.eps[0]
        if gradient.ndim < 2:
            v = keep * state["exp_avg_sq"] + (1 - keep) * squared
            state["exp_avg_sq"] = v
            return mx.rsqrt(v) * gradient
        row = keep * state["exp_avg_sq_row"] + (1 - keep) * mx.mean(squared, axis=-1)
        col = keep * state["exp_avg_sq_col"] + (1 - keep) * mx.mean(squared, axis=-2)
        state["exp_avg_sq_row"], state["exp_avg_sq_col"] = row, col
        row_factor = mx.rsqrt(row / mx.mean(row, axis=-1, keepdims=True))
        return row_factor[..., :, None] * mx.rsqrt(col)[..., None, :] * gradient

    def apply_single(self, gradient, parameter, state):
        update = self._normalized(gradient, state)
        update = update / mx.maximum(1.0, _rms(update) / self.clip_threshold)
        rate = self._rate(parameter)
        update = rate * update
        if self.beta_1 is not None:
            update = self.beta_1 * state["exp_avg"] + (1 - self.beta_1) * update
            state["exp_avg"] = update
        if self.weight_decay != 0:
            parameter = parameter - self.weight_decay * rate * parameter
        return parameter - update


def _rms(x):
    return mx.sqrt(mx.mean(mx.square(x)))


class Muon(Optimizer):
    """Momentum made orthogonal by Newton-Schulz steps (Jordan et al. 2024), for the weights of
    hidden layers; parameters of less than two axes get the momentum itself.

    g += weight_decay·p; v' = momentum·v + (1 - momentum)·g; u = v', or with `nesterov`
    momentum·v' + (1 - momentum)·g; p' = p - lr·√max(1, rows/columns)·orthogonal(u). Axes after
    the first are taken together as columns.
    """

    def __init__(self, learning_rate, momentum=0.95, weight_decay=0.01, nesterov=True, ns_steps=5):
        super().__init__()
        self._require_rates(momentum=momentum)
        self._require_least(0, weight_decay=weight_decay)
        require_sizes("Muon", 0, ns_steps=ns_steps)
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.ns_steps = ns_steps

    def init_single(self, parameter, state):
        state["v"] = mx.zeros_like(parameter)

    def _orthogonal(self, x):
        """U·Vᵀ of the matrix x = U·S·Vᵀ, roughly: its singular values come to lie near 1."""
        a, b, c = 3.4445, -4.7750, 2.0315
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        x = x / (mx.sqrt(mx.sum(mx.square(x))) + 1e-7)
        for _ in range(self.ns_steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x.T if tall else x

    def apply_single(self, gradient, parameter, state):
        lr = self.learning_rate.astype(gradient.dtype)
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        v = self.momentum * state["v"] + (1 - self.momentum) * gradient
        state["v"] = v
        update = self.momentum * v + (1 - self.momentum) * gradient if self.nesterov else v
        if update.ndim >= 2:
            rows = update.shape[0]
            matrix = update.reshape(rows, -1)
            lr = lr * math.sqrt(max(1, rows / matrix.shape[1]))
            update = self._orthogonal(matrix).reshape(update.shape)
        return parameter - lr * update


def clip_grad_norm(grads, max_norm):
    """(grads scaled by min(1, max_norm/(norm + 1e-6)), norm), with norm the 2-norm over all
    arrays of the tree together, of float16 in float32. Each array keeps its dtype.
    """
    require_numbers("clip_grad_norm", max_norm=max_norm)
    leaves = [g for _, g in tree_flatten(grads)]
    for g in leaves:
        require_type("clip_grad_norm", "an array", mx.array, gradient=g)
    # The square of a norm soon leaves float16.
    wide = [g.astype(mx.float32) if g.dtype == mx.float16 else g for g in leaves]
    squares = [mx.sum(mx.square(g)) for g in wide]
    norm = mx.sqrt(reduce(add, squares)) if squares else mx.array(0.0)
    scale = mx.minimum(max_norm / (norm + 1e-6), 1.0)
    return tree_map(lambda g: (g * scale).astype(g.dtype), grads), norm
