#include "node/owner/clears.h"

#include <sstream>

namespace larder::node {

namespace {
constexpr std::string_view kClearsTitle = "larder-clears 1";
}

void Clears::Note(const Namespace& name_space, uint64_t stamp_ms) {
  const uint64_t known_ms = Of(name_space);
  if (stamp_ms != known_ms) Set(name_space, std::max(stamp_ms, known_ms + 1));
}

bool Clears::Take(const Namespace& name_space, uint64_t stamp_ms) {
  if (stamp_ms <= Of(name_space)) return false;
  Set(name_space, stamp_ms);
  return true;
}

uint64_t Clears::Of(const Namespace& name_space) const {
  const auto found = stamps_.find(name_space);
  return found == stamps_.end() ? 0 : found->second;
}

void Clears::Set(const Namespace& name_space, uint64_t stamp_ms) {
  stamps_[name_space] = stamp_ms;
  if (stamps_.size() <= kMost) return;
  const auto oldest = std::min_element(stamps_.begin(), stamps_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  Forget(oldest->second);
  stamps_.erase(oldest);
}

uint64_t Clears::latest_ms() const {
  uint64_t latest_ms = forgotten_ms_;
  for (const auto& [name_space, stamp_ms] : stamps_) latest_ms = std::max(latest_ms, stamp_ms);
  return latest_ms;
}

std::string Clears::Text() const {
  std::string text(kClearsTitle);
  text += "\nforgotten " + std::to_string(forgotten_ms_) + "\n";
  for (const auto& [name_space, stamp_ms] : stamps_) {
    text += "cleared " + ToHex(name_space.bytes) + " " + std::to_string(stamp_ms) + "\n";
  }
  return text;
}

Result<Clears> Clears::Parse(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string line;
  if (!std::getline(in, line) || line != kClearsTitle) {
    return Status(Code::kCorrupt, "it does not begin with \"" + std::string(kClearsTitle) + "\"");
  }
  Clears out;
  for (int number = 2; std::getline(in, line); ++number) {
    std::istringstream words(line);
    std::string kind, hex, rest;
    Namespace name_space;
    uint64_t stamp_ms = 0;
    bool good = bool(words >> kind);
    if (kind == "forgotten") {
      good = bool(words >> stamp_ms);
      out.Forget(stamp_ms);
    } else {
      good = good && kind == "cleared" && words >> hex >> stamp_ms && FromHex(hex, &name_space.bytes).ok();
      if (good) out.Set(name_space, stamp_ms);
    }
    if (!good || words >> rest) {
      return Status(Code::kCorrupt, "line " + std::to_string(number) + " makes no sense");
    }
  }
  return out;
}

}  // namespace larder::node
