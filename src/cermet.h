// SPDX-License-Identifier: MIT
// The public entry header: arrays, ops, evaluation, transforms, memory, in the order of their layers.
#pragma once

#include "base/env.h"
#include "base/error.h"
#include "graph/array.h"
#include "graph/hooks.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/poll.h"
#include "runtime/stream.h"
#include "schedule/eval.h"
#include "transform/compile.h"
#include "transform/custom.h"
#include "transform/transform.h"
