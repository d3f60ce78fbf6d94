// Reads the head of a record past the disk's queues, for work that may take its time and be done by any
// thread.
#pragma once

#include <optional>
#include <string>

#include "node/ssd/disk.h"
#include "proto/block_header.h"

namespace larder::node::ssd {

// Waits for the disk. None: it is not there (any more), or can't be read.
std::optional<BlockHeader> ReadHead(const std::string& directory, const IndexRecord& record);

}  // namespace larder::node::ssd
