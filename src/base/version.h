// SPDX-License-Identifier: MIT
// The version of the library, as CMake's project has it.
#pragma once

namespace cermet {

const char* version();  // "0.1.0"

}  // namespace cermet
