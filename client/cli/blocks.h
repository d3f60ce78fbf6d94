// Commands that move or look up blocks.
#pragma once

#include "client/cli/name_space.h"

namespace larder::cli {

// Hashes in hex, of a command line and of a file ("-": standard input; empty: none), in order. `words` gets
// those of the file too.
Status ReadChain(std::vector<std::string>* words, const std::string& file, std::vector<ChainHash>* chain);

void AddExplain(CLI::App* app, Run* run);
void AddLocate(CLI::App* app, Run* run);
void AddMatch(CLI::App* app, Run* run);
void AddPut(CLI::App* app, Run* run);
void AddGet(CLI::App* app, Run* run);
void AddRemove(CLI::App* app, Run* run);

}  // namespace larder::cli
