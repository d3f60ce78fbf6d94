// Small files of a node that must be whole after a crash, in folders that one process uses at a time.
#pragma once

#include <string>
#include <string_view>

#include "proto/status.h"

namespace larder::node {

// After it returns the file is `bytes`, also after a power cut; before, it is what it was, or `bytes`.
// kUnavailable has the path and the system's reason; the caller says which setting mends it.
Status ReplaceFile(const std::string& path, std::string_view bytes);

// Makes durable what was done to the folder's names.
Status SyncFolder(const std::string& path);

// A descriptor that holds the folder's `lock` file until it is closed, or the process ends. kBusy: another
// process holds it.
Result<int> LockFolder(const std::string& path);

}  // namespace larder::node
