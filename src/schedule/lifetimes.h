// SPDX-License-Identifier: MIT
// How long each value of a program lives, by launch: what dies with it, and which outputs may take the
// place of what dies. Launches of one batch run at one time, so a value that several of them read can be
// freed after the batch, but not be overwritten in it.
#pragma once

#include "schedule/program.h"

namespace cermet {

// The launches must be in their final order, batches made, outputs known.
void find_lifetimes(Program& program);

}  // namespace cermet
