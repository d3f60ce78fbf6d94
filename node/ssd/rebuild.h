// What a segment says about itself, for an index that is lost.
#pragma once

#include <vector>

#include "node/ssd/disk.h"

namespace larder::node::ssd {

// The records of the segment's present life whose heads are whole, by reading heads only; what lies behind a
// damaged one is searched page by page. Empty: no segment begins there. Their payloads are checked when they
// are read.
std::vector<IndexRecord> ReadSegment(int fd, uint32_t segment, uint64_t segment_bytes);

}  // namespace larder::node::ssd
