// What an operator has ruled out: blocks of a writer from a time on, or everything (bypass). Pure; the text
// form is what a node keeps over a restart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/block_key.h"
#include "proto/status.h"

namespace larder::node {

struct QuarantineRule {
  Digest writer{};        // the credential that wrote; zeros: anonymous
  uint64_t since_ms = 0;  // Unix, by the node's clock; what it wrote from then on
  uint64_t set_ms = 0;    // when the rule was made
  Digest because{};       // it read blocks of this writer; its own, when an operator named it
  bool operator==(const QuarantineRule&) const = default;
};

class Quarantine {
 public:
  static constexpr size_t kRulesMax = 256;

  // A writer has one rule: an earlier `since_ms` extends it. kBusy: too many rules. True: something changed.
  Result<bool> Add(const QuarantineRule& rule);
  bool Lift(const Digest& writer);  // false: no such rule
  bool Bans(const Digest& writer, uint64_t created_ms) const {
    for (const QuarantineRule& rule : rules_) {
      if (rule.writer == writer && created_ms >= rule.since_ms) return true;
    }
    return false;
  }
  const std::vector<QuarantineRule>& rules() const { return rules_; }

  bool bypass = false;  // everything is a miss

  // Lines: "larder-quarantine 1", "bypass on", "rule WRITER SINCE_MS SET_MS BECAUSE". kCorrupt says which
  // line.
  std::string Text() const;
  static Result<Quarantine> Parse(std::string_view text);

 private:
  std::vector<QuarantineRule> rules_;
};

// The file at `path`; no rules when there is none or the path is empty. kInvalid says what to do.
Result<Quarantine> LoadQuarantine(const std::string& path);

}  // namespace larder::node
