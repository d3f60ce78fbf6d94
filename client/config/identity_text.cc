#include "client/config/identity_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace larder {
namespace {

Result<Identity> FromJson(std::string_view text) {
  bool twice = false;
  std::string twice_name;
  std::vector<std::string> names;
  // The parser's own objects keep the last of two equal names without a word.
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event != nlohmann::json::parse_event_t::key || depth != 1) return true;
    const std::string name = parsed.get<std::string>();
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      twice = true;
      twice_name = name;
    }
    names.push_back(name);
    return true;
  };
  const nlohmann::json root = nlohmann::json::parse(text.begin(), text.end(), watch, false);
  if (!root.is_object()) return Invalid("the identity begins like JSON and is no JSON object");
  if (twice) return Invalid("identity field \"" + twice_name + "\" is given twice");
  Identity identity;
  for (const auto& [name, value] : root.items()) {
    if (!value.is_string() && !value.is_number_integer() && !value.is_boolean()) {
      return Invalid("identity field \"" + name + "\" is neither text, whole number nor truth value");
    }
    LARDER_RETURN_IF_ERROR(identity.Set(name, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return identity;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

Result<Identity> FromLines(std::string_view text) {
  Identity identity;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n,"), text.size());
    const std::string_view entry = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (entry.empty()) continue;
    const size_t equals = entry.find('=');
    if (equals == entry.npos) return Invalid("\"" + std::string(entry) + "\": write it as name=value");
    const std::string_view name = Trimmed(entry.substr(0, equals));
    if (!identity.Get(name).empty()) {
      return Invalid("identity field \"" + std::string(name) + "\" is given twice");
    }
    LARDER_RETURN_IF_ERROR(identity.Set(name, Trimmed(entry.substr(equals + 1))));
  }
  return identity;
}

}  // namespace

Result<Identity> IdentityFromText(std::string_view text) {
  if (text.size() > 4 * kIdentityBytesMax) return Invalid("an identity has at most 16 KiB");
  if (Result<Identity> canonical = Identity::Parse(text); canonical.ok() && !text.empty()) return canonical;
  const std::string_view trimmed = Trimmed(text);
  if (trimmed.empty()) return Invalid("the identity is empty: give at least kind=kv or kind=opaque");
  return trimmed.front() == '{' ? FromJson(trimmed) : FromLines(trimmed);
}

}  // namespace larder
