// Facts of a roster as messages between nodes and as bytes on a disk.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "node/membership/roster.h"
#include "proto/status.h"

namespace larder::control::v1 {
class Facts;
}

namespace larder::node {

// All facts, in messages of at most `most` records each.
std::vector<control::v1::Facts> FactsMessages(const Roster& roster, size_t most);

// kInvalid or kCorrupt: none of it was taken. `news` is raised when some of it was new.
Status MergeFacts(const control::v1::Facts& facts, Roster* roster, bool* news);

std::string RosterBytes(const Roster& roster);
Status MergeRosterBytes(std::string_view bytes, Roster* roster);

}  // namespace larder::node
