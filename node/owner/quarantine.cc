#include "node/owner/quarantine.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>

namespace larder::node {

namespace {
constexpr std::string_view kRulesTitle = "larder-quarantine 1";
}

Result<bool> Quarantine::Add(const QuarantineRule& rule) {
  for (QuarantineRule& known : rules_) {
    if (known.writer != rule.writer) continue;
    if (known.since_ms <= rule.since_ms) return false;
    known.since_ms = rule.since_ms;
    return true;
  }
  if (rules_.size() >= kRulesMax) {
    return Status(Code::kBusy, "there are " + std::to_string(kRulesMax) + " rules already; lift some");
  }
  rules_.push_back(rule);
  return true;
}

bool Quarantine::Lift(const Digest& writer) {
  return std::erase_if(rules_, [&](const QuarantineRule& rule) { return rule.writer == writer; }) != 0;
}

std::string Quarantine::Text() const {
  std::string text(kRulesTitle);
  text += "\n";
  if (bypass) text += "bypass on\n";
  for (const QuarantineRule& rule : rules_) {
    text += "rule " + ToHex(rule.writer) + " " + std::to_string(rule.since_ms) + " " +
            std::to_string(rule.set_ms) + " " + ToHex(rule.because) + "\n";
  }
  return text;
}

Result<Quarantine> Quarantine::Parse(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string line;
  if (!std::getline(in, line) || line != kRulesTitle) {
    return Status(Code::kCorrupt, "it does not begin with \"" + std::string(kRulesTitle) + "\"");
  }
  Quarantine out;
  for (int number = 2; std::getline(in, line); ++number) {
    std::istringstream words(line);
    std::string kind, writer, because, rest;
    QuarantineRule rule;
    bool good = bool(words >> kind);
    if (kind == "bypass") {
      good = words >> rest && rest == "on";
      out.bypass = good;
    } else {
      good = good && kind == "rule" && words >> writer >> rule.since_ms >> rule.set_ms >> because &&
             FromHex(writer, &rule.writer).ok() && FromHex(because, &rule.because).ok() && out.Add(rule).ok();
    }
    if (!good || words >> rest) {
      return Status(Code::kCorrupt, "line " + std::to_string(number) + " makes no sense");
    }
  }
  return out;
}

Result<Quarantine> LoadQuarantine(const std::string& path) {
  if (path.empty()) return Quarantine();
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return Quarantine();
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Result<Quarantine> parsed = in.bad() || !in.is_open()
                                  ? Result<Quarantine>(Status(Code::kUnavailable, "it can't be read"))
                                  : Quarantine::Parse(text);
  if (parsed.ok()) return parsed;
  return Invalid(path + ": " + parsed.status().text() +
                 "; mend it, or remove it to serve without the quarantine that it holds");
}

}  // namespace larder::node
