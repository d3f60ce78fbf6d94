// KV events in the form that vLLM's engines publish and that routers read (vllm.distributed.kv_events): what
// a message holds, byte for byte, and what its topic is called. Pure.
//
// A payload is msgpack: [seconds, [event, ...], data-parallel rank]. An event is a map that begins with
// "type", as vLLM writes them, or an array that begins with the tag, as it did before and as SGLang does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/block_key.h"
#include "proto/message.h"
#include "proto/status.h"

namespace larder::node {

enum class KvEventForm : uint8_t { kMap, kArray };

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  Presence tier = Presence::kRam;  // kRam: medium "CPU"; kSsd: "STORAGE"
  uint16_t group = 0;
  uint32_t block_tokens = 0;     // kStored: of a block of the engine's
  std::vector<uint64_t> hashes;  // of blocks of the engine's, in the chain's order

  bool operator==(const KvEvent&) const = default;
};

// An engine's hash as vLLM publishes it unless VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is 0: its last 8 bytes, as
// a big-endian number. Routers make the same number of what engines publish as bytes.
uint64_t PublishedHash(const ChainHash& hash);

std::string EncodeKvEvents(double seconds, std::span<const KvEvent> events, KvEventForm form);

// A topic may have {node}, {namespace} (64 hex digits), {tenant}, and any field of the identity, as {model}
// or {cache_prefix}. kInvalid: a brace without its other one, or a name that no field can have.
Status CheckTopic(std::string_view topic);

struct TopicNames {
  std::string_view node, tenant;
  Namespace name_space;
};
// Of a topic that CheckTopic accepts; a field that the identity lacks is empty.
std::string TopicOf(std::string_view topic, const TopicNames& names, const Identity& identity);

}  // namespace larder::node
