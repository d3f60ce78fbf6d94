// What nodes know of single blocks: where they are, or why they are not.
#pragma once

#include "client/cli/blocks.h"
#include "client/cli/cluster.h"

namespace larder::cli {

// The blocks that a command line names, and who could have them.
struct NamedBlocks {
  std::vector<ChainHash> chain;
  std::string name_space;  // hex
  NodeTable table;         // with control addresses
};
// Fails with the command's exit code.
int FindBlocks(const Globals& globals, const NamespaceFlags& name_space, const std::string& file,
               std::vector<std::string>* words, NamedBlocks* found);

// One node's answer about one block, or why there is none.
struct BlockStory {
  std::string node;      // its id
  std::string error;     // it did not answer
  bool unknown = false;  // it has never heard of the namespace
  control::v1::ExplainResponse::Block story;
  uint64_t since_ms = 0;  // what it remembers of what left

  std::string presence() const;
  bool there() const { return presence() == "ram" || presence() == "ssd"; }
};

// Asks a node for some of the blocks; `places` are theirs in the chain and in `stories`.
void AskNode(const Globals& globals, const NodeRecord& node, const NamedBlocks& blocks, uint32_t group,
             const std::vector<size_t>& places, std::vector<BlockStory>* stories);

}  // namespace larder::cli
