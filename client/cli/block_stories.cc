#include "client/cli/block_stories.h"

namespace larder::cli {

namespace api = larder::control::v1;

int FindBlocks(const Globals& globals, const NamespaceFlags& name_space, const std::string& file,
               std::vector<std::string>* words, NamedBlocks* found) {
  if (Status status = ReadChain(words, file, &found->chain); !status.ok()) return Fail(status, kExitUsage);
  Result<std::unique_ptr<Client>> client = Connect(globals);
  if (!client.ok()) return Fail(client.status());
  const Result<NamespaceHandle> handle = OpenNamespace(name_space, client.value().get());
  if (!handle.ok()) return Fail(handle.status(), kExitUsage);
  found->name_space = ToHex(handle.value().name_space.bytes);
  found->table = TableWithControl(globals, *client.value());
  return kExitOk;
}

std::string BlockStory::presence() const {
  if (!error.empty()) return "unreachable";
  return unknown ? "never-stored" : story.presence();
}

void AskNode(const Globals& globals, const NodeRecord& node, const NamedBlocks& blocks, uint32_t group,
             const std::vector<size_t>& places, std::vector<BlockStory>* stories) {
  for (size_t begin = 0; begin < places.size(); begin += kBlocksMax) {
    const size_t end = std::min<size_t>(places.size(), begin + kBlocksMax);
    api::ExplainRequest request;
    request.set_hex(blocks.name_space);
    for (size_t i = begin; i < end; ++i) {
      const auto& bytes = blocks.chain[places[i]].bytes;
      api::ExplainRequest::Block* block = request.add_blocks();
      block->set_hash(bytes.data(), bytes.size());
      block->set_group(group);
    }
    api::ExplainResponse response;
    const Status status = AskExplain(node.control_address, globals, request, &response);
    for (size_t i = begin; i < end; ++i) {
      BlockStory& story = (*stories)[places[i]];
      story.node = node.id;
      story.since_ms = response.remembers_since_unix_ms();
      story.unknown = status.code() == Code::kNotFound;
      const bool short_answer = static_cast<size_t>(response.blocks_size()) != end - begin;
      if (story.unknown) continue;
      if (!status.ok() || short_answer) {
        story.error = status.ok() ? "a short answer" : status.text();
      } else {
        story.story = response.blocks(static_cast<int>(i - begin));
      }
    }
  }
}

}  // namespace larder::cli
