#include "node/events/kv_event_format.h"

#include <nlohmann/json.hpp>

namespace larder::node {
namespace {

using Json = nlohmann::ordered_json;

// The tiers by vLLM's names for them.
std::string_view MediumOf(Presence tier) {
  return tier == Presence::kSsd ? "STORAGE" : "CPU";
}

// As msgspec writes its tagged structs: every field without a default, then the others up to the last one
// that is not at its default, which maps leave out and arrays fill with nil.
class Fields {
 public:
  Fields(std::string_view tag, KvEventForm form) : form_(form) {
    if (form_ == KvEventForm::kMap) {
      value_ = Json::object();
      value_["type"] = tag;
    } else {
      value_ = Json::array({tag});
    }
  }
  Fields& Add(const char* name, Json&& value) {
    if (form_ == KvEventForm::kMap) {
      value_[name] = std::move(value);
    } else {
      value_.push_back(std::move(value));
    }
    return *this;
  }
  Fields& AddDefault() {
    if (form_ == KvEventForm::kArray) value_.push_back(nullptr);
    return *this;
  }
  Json Take() { return std::move(value_); }

 private:
  const KvEventForm form_;
  Json value_;
};

Json ValueOf(const KvEvent& event, KvEventForm form) {
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      return Fields("BlockStored", form)
          .Add("block_hashes", event.hashes)
          .Add("parent_block_hash", nullptr)  // a block of a node stands alone
          .Add("token_ids", Json::array())    // a node never sees tokens
          .Add("block_size", event.block_tokens)
          .Add("lora_id", nullptr)
          .Add("medium", MediumOf(event.tier))
          .Add("lora_name", nullptr)
          .AddDefault()  // extra_keys
          .Add("group_idx", event.group)
          .Take();
    case KvEvent::Kind::kRemoved:
      return Fields("BlockRemoved", form)
          .Add("block_hashes", event.hashes)
          .Add("medium", MediumOf(event.tier))
          .Add("group_idx", event.group)
          .Take();
    case KvEvent::Kind::kCleared:
      break;
  }
  return Fields("AllBlocksCleared", form).Take();
}

bool MayBeField(std::string_view name) {
  if (name.empty() || name.size() > 64 || name[0] < 'a' || name[0] > 'z') return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

}  // namespace

uint64_t PublishedHash(const ChainHash& hash) {
  uint64_t out = 0;
  for (size_t i = hash.bytes.size() - 8; i < hash.bytes.size(); ++i) {
    out = out << 8 | std::to_integer<uint64_t>(hash.bytes[i]);
  }
  return out;
}

std::string EncodeKvEvents(double seconds, std::span<const KvEvent> events, KvEventForm form) {
  Json list = Json::array();
  for (const KvEvent& event : events) list.push_back(ValueOf(event, form));
  Json batch = Json::array();
  batch.push_back(seconds);
  batch.push_back(std::move(list));
  batch.push_back(0);  // a node has no ranks; vLLM without data parallelism says 0 too
  const std::vector<uint8_t> bytes = Json::to_msgpack(batch);
  return {bytes.begin(), bytes.end()};
}

Status CheckTopic(std::string_view topic) {
  while (!topic.empty()) {
    const size_t open = topic.find_first_of("{}");
    if (open == std::string_view::npos) break;
    const size_t close = topic.find_first_of("{}", open + 1);
    if (topic[open] == '}' || close == std::string_view::npos || topic[close] == '{') {
      return Invalid("a { or } stands alone; write {namespace}, {node}, {tenant} or {FIELD} of the identity");
    }
    const std::string_view name = topic.substr(open + 1, close - open - 1);
    if (!MayBeField(name)) {
      return Invalid("{" + std::string(name) +
                     "} can't be a field of an identity; those are lower-case letters, digits and _");
    }
    topic.remove_prefix(close + 1);
  }
  return Status::Ok();
}

std::string TopicOf(std::string_view topic, const TopicNames& names, const Identity& identity) {
  std::string out;
  for (size_t open; (open = topic.find('{')) != std::string_view::npos;) {
    const size_t close = topic.find('}', open);
    const std::string_view name = topic.substr(open + 1, close - open - 1);
    out += topic.substr(0, open);
    if (name == "node") {
      out += names.node;
    } else if (name == "tenant") {
      out += names.tenant;
    } else if (name == "namespace") {
      out += ToHex(names.name_space.bytes);
    } else {
      out += identity.Get(name);
    }
    topic.remove_prefix(close + 1);
  }
  return out.append(topic);
}

}  // namespace larder::node
