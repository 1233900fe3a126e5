// SPDX-License-Identifier: MIT
// What tells one build of this library from every other: what it wrote to disk is of use to itself only.
#pragma once

#include <string>

namespace cermet {

// The linker's build id in hexadecimal; without one, the size and time of the file that holds this code.
const std::string& build_id();

}  // namespace cermet
