// Commands that move or look up blocks.
#pragma once

#include "client/cli/name_space.h"

namespace larder::cli {

void AddMatch(CLI::App* app, Run* run);
void AddPut(CLI::App* app, Run* run);
void AddGet(CLI::App* app, Run* run);

}  // namespace larder::cli
