// Knobs: text to value and back.
#include "node/daemon/config.h"

#include <algorithm>
#include <charconv>

#include "proto/units.h"

namespace larder::node {
namespace {

constexpr Knob kKnobs[] = {
#define LARDER_ROW(kind, field, name, value, min, max, help) \
  {KnobKind::kind, name, &Config::field, value, min, max, help},
    LARDER_KNOBS(LARDER_ROW)
#undef LARDER_ROW
};

Result<uint64_t> ParseCount(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return Invalid("\"" + std::string(text) + "\" is no whole number");
  }
  return value;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    std::string_view item = text.substr(0, end);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty()) items.emplace_back(item);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return items;
}

Status SetNumber(const Knob& knob, std::string_view text, uint64_t* value) {
  const Result<uint64_t> parsed = ParseNumber(knob.kind, text);
  if (!parsed.ok()) return parsed.status();
  const uint64_t min = ParseNumber(knob.kind, knob.min).value();
  const uint64_t max = ParseNumber(knob.kind, knob.max).value();
  if (parsed.value() < min || parsed.value() > max) {
    return Invalid(std::string(text) + " is out of range; it may be " + knob.range());
  }
  *value = parsed.value();
  return Status::Ok();
}

Status SetText(const Knob& knob, std::string_view text, std::string* value) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return Invalid("a control character is in the value");
  }
  switch (knob.kind) {
    case KnobKind::Choice: {
      const auto choices = Split(knob.min, '|');
      if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
        return Invalid("\"" + std::string(text) + "\" is not known; choose " + knob.range());
      }
      break;
    }
    case KnobKind::Address: {
      if (text.empty() && knob.default_text.empty()) break;  // switches the listener off
      const Result<HostPort> parsed = ParseHostPort(text);
      if (!parsed.ok()) return parsed.status();
      break;
    }
    default:
      if (text.size() > ParseCount(knob.max).value()) {
        return Invalid("it has " + std::to_string(text.size()) + " characters; " + std::string(knob.max) +
                       " are the limit");
      }
  }
  *value = text;
  return Status::Ok();
}

Status SetSwitch(std::string_view text, bool* value) {
  if (text == "true" || text == "on" || text == "yes" || text == "1") {
    *value = true;
  } else if (text == "false" || text == "off" || text == "no" || text == "0") {
    *value = false;
  } else {
    return Invalid("\"" + std::string(text) + "\" is no switch; write true or false");
  }
  return Status::Ok();
}

}  // namespace

Result<uint64_t> ParseNumber(KnobKind kind, std::string_view text) {
  if (kind == KnobKind::Bytes) return ParseBytes(text);
  if (kind == KnobKind::Duration) return ParseDurationUs(text);
  return ParseCount(text);
}

std::span<const Knob> Knobs() {
  return kKnobs;
}

const Knob* FindKnob(std::string_view name) {
  for (const Knob& knob : kKnobs) {
    if (knob.name == name) return &knob;
  }
  return nullptr;
}

std::string Knob::flag() const {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string Knob::variable() const {
  std::string text = "LARDER_" + std::string(name);
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

std::string Knob::range() const {
  switch (kind) {
    case KnobKind::Switch:
      return "true or false";
    case KnobKind::Address:
      return default_text.empty() ? "host:port, or empty" : "host:port";
    case KnobKind::List:
      return "a list";
    case KnobKind::Choice: {
      std::string text(min);
      for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, ", ");
      return text;
    }
    case KnobKind::Text:
    case KnobKind::Path:
      return "at most " + std::string(max) + " characters";
    default:
      return std::string(min) + ".." + std::string(max);
  }
}

Config DefaultConfig() {
  Config config;
  for (const Knob& knob : kKnobs) {
    const Status status = SetKnob(knob, knob.default_text, &config);
    LARDER_CHECK(status.ok());
  }
  return config;
}

Status SetKnob(const Knob& knob, std::string_view text, Config* config) {
  if (const auto* number = std::get_if<uint64_t Config::*>(&knob.field)) {
    return SetNumber(knob, text, &(config->**number));
  }
  if (const auto* truth = std::get_if<bool Config::*>(&knob.field))
    return SetSwitch(text, &(config->**truth));
  if (const auto* list = std::get_if<std::vector<std::string> Config::*>(&knob.field)) {
    config->** list = Split(text, ',');
    return Status::Ok();
  }
  return SetText(knob, text, &(config->*std::get<std::string Config::*>(knob.field)));
}

std::string KnobText(const Knob& knob, const Config& config) {
  if (const auto* number = std::get_if<uint64_t Config::*>(&knob.field)) {
    const uint64_t value = config.**number;
    if (knob.kind == KnobKind::Bytes) return ExactBytes(value);
    return knob.kind == KnobKind::Duration ? ExactDuration(value) : std::to_string(value);
  }
  if (const auto* truth = std::get_if<bool Config::*>(&knob.field)) return config.**truth ? "true" : "false";
  if (const auto* list = std::get_if<std::vector<std::string> Config::*>(&knob.field)) {
    std::string text;
    for (const std::string& item : config.**list) text += (text.empty() ? "" : ",") + item;
    return text;
  }
  return config.*std::get<std::string Config::*>(knob.field);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Invalid("\"" + std::string(text) + "\" is no address (" + std::string(why) +
                   "); write it like 127.0.0.1:7400 or [::1]:7400");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("the port is missing");
  HostPort out;
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("an IPv6 host needs brackets");
  }
  if (host.empty()) return bad("the host is missing");
  if (host.find_first_of(" []@*,/") != std::string_view::npos) return bad("its host has a strange character");
  const Result<uint64_t> port = ParseCount(text.substr(colon + 1));
  if (!port.ok() || port.value() > 65535) return bad("a port is a number up to 65535");
  out.host = host;
  out.port = static_cast<uint16_t>(port.value());
  return out;
}

std::string JoinHostPort(std::string_view host, uint16_t port) {
  const bool brackets = host.find(':') != std::string_view::npos;
  return (brackets ? "[" : "") + std::string(host) + (brackets ? "]:" : ":") + std::to_string(port);
}

std::string Nearest(std::string_view name, std::span<const std::string> names) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& other : names) {
    std::vector<size_t> row(other.size() + 1);
    for (size_t j = 0; j < row.size(); j++) row[j] = j;
    for (size_t i = 1; i <= name.size(); i++) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= other.size(); j++) {
        const size_t replaced = diagonal + (name[i - 1] == other[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = other;
    }
  }
  return best;
}

}  // namespace larder::node
