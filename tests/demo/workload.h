// The requests that the demo plays: of its own conversations, or of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"

namespace larder::demo {

struct Request {
  uint64_t at_ms = 0;            // when it arrives, on the workload's own clock
  std::vector<uint64_t> blocks;  // its prefix, root first; equal numbers are equal whole prefixes
  uint64_t tokens = 0;           // of the prefix, when a trace tells
};

struct ConversationOptions {
  uint64_t seed = 1;
  uint32_t conversations = 90;
  uint32_t system_prompts = 4;  // shared by all conversations, the first by half of them
  uint64_t span_ms = 420'000;   // over which conversations begin
  uint64_t think_ms = 20'000;   // mean time between an answer and the next question
};

// Multi-turn conversations: each starts from a shared system prompt; every turn's prefix is the whole
// history, grown by the question and the last answer. Sorted by arrival. The same seed gives the same
// requests.
std::vector<Request> MakeConversations(const ConversationOptions& options);

// A trace of the Mooncake format: one JSON object a line with `timestamp` (ms) and `hash_ids`; `input_length`
// (tokens) may be there, the other fields are for people. kInvalid names the line.
Result<std::vector<Request>> ReadTrace(const std::string& path);

struct Ideal {
  uint64_t blocks = 0;  // that requests refer to
  uint64_t distinct = 0;
  std::vector<uint32_t> hits;  // [request]: longest prefix that a cache without bounds would have
  uint64_t hit_blocks = 0;
};
Ideal IdealOf(const std::vector<Request>& requests);

}  // namespace larder::demo
