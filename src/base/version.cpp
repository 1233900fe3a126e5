// SPDX-License-Identifier: MIT
#include "base/version.h"

namespace cermet {

const char* version() { return CERMET_VERSION; }

}  // namespace cermet
