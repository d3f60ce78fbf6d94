#include "tests/demo/workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <unordered_set>

#include "proto/message.h"

namespace larder::demo {

namespace {

// The standard's distributions differ from library to library; these don't.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  uint64_t Exponential(double mean) {
    const double share = (double(engine_() >> 11) + 1) / 9007199254740993.0;
    return uint64_t(-mean * std::log(share));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

std::vector<Request> MakeConversations(const ConversationOptions& options) {
  Dice dice(options.seed);
  uint64_t next_block = 0;
  const auto grow = [&next_block](std::vector<uint64_t>* chain, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) chain->push_back(next_block++);
  };
  std::vector<std::vector<uint64_t>> prompts(options.system_prompts);
  for (auto& prompt : prompts) grow(&prompt, dice.Between(4, 12));

  std::vector<Request> requests;
  for (uint32_t i = 0; i < options.conversations; ++i) {
    const bool popular = dice.Below(2) == 0;
    std::vector<uint64_t> history = prompts[popular ? 0 : dice.Below(prompts.size())];
    uint64_t at_ms = dice.Below(options.span_ms);
    const uint64_t turns = dice.Between(2, 8);
    for (uint64_t turn = 0; turn < turns; ++turn) {
      grow(&history,
           dice.Between(1, turn == 0 ? 10 : 4));  // the question, in the first turn with its documents
      requests.push_back({at_ms, history});
      grow(&history, dice.Between(1, 3));  // the answer, computed again by the next turn's prefill
      at_ms += 2'000 + dice.Exponential(double(options.think_ms));
    }
  }
  const auto earlier = [](const Request& a, const Request& b) { return a.at_ms < b.at_ms; };
  std::stable_sort(requests.begin(), requests.end(), earlier);
  return requests;
}

Result<std::vector<Request>> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Invalid("the trace " + path + " can't be read");
  std::vector<Request> requests;
  std::string line;
  for (uint64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) return Invalid(where + "no JSON object");
    const auto time = object.find("timestamp"), ids = object.find("hash_ids");
    if (time == object.end() || !time->is_number() || ids == object.end() || !ids->is_array()) {
      return Invalid(where + "wants a number `timestamp` and a list `hash_ids`");
    }
    Request request;
    request.at_ms = uint64_t(std::max(0.0, time->get<double>()));
    const auto tokens = object.find("input_length");
    if (tokens != object.end() && tokens->is_number_unsigned()) request.tokens = tokens->get<uint64_t>();
    for (const auto& id : *ids) {
      if (!id.is_number_integer() || id < 0) return Invalid(where + "hash_ids are whole numbers from 0 on");
      request.blocks.push_back(id.get<uint64_t>());
    }
    if (request.blocks.size() > kHashesMax) {
      return Invalid(where + "a chain of more than " + std::to_string(kHashesMax) + " blocks");
    }
    if (!request.blocks.empty()) requests.push_back(std::move(request));
  }
  if (requests.empty()) return Invalid("the trace " + path + " has no requests");
  const auto earlier = [](const Request& a, const Request& b) { return a.at_ms < b.at_ms; };
  std::stable_sort(requests.begin(), requests.end(), earlier);
  return requests;
}

Ideal IdealOf(const std::vector<Request>& requests) {
  Ideal ideal;
  std::unordered_set<uint64_t> seen;
  for (const Request& request : requests) {
    const auto is_new = [&seen](uint64_t block) { return !seen.contains(block); };
    const auto first_new = std::find_if(request.blocks.begin(), request.blocks.end(), is_new);
    ideal.hits.push_back(uint32_t(first_new - request.blocks.begin()));
    ideal.hit_blocks += ideal.hits.back();
    ideal.blocks += request.blocks.size();
    seen.insert(request.blocks.begin(), request.blocks.end());
  }
  ideal.distinct = seen.size();
  return ideal;
}

}  // namespace larder::demo
