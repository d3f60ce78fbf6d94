#include "client/config/client_config.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "proto/units.h"

namespace larder {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

struct Setting {
  std::string_view key;
  const char* variable;
  Status (*set)(const std::string& text, ClientOptions* options);
};

template <auto Member>
Status SetText(const std::string& text, ClientOptions* options) {
  options->*Member = text;
  return Status::Ok();
}

template <auto Member, auto Parse>
Status SetParsed(const std::string& text, ClientOptions* options) {
  const Result<uint64_t> value = Parse(text);
  if (!value.ok()) return value.status();
  using Field = std::remove_reference_t<decltype(options->*Member)>;
  if (value.value() > static_cast<uint64_t>(std::numeric_limits<Field>::max()))
    return Invalid(text + " is too large");
  options->*Member = static_cast<Field>(value.value());
  return Status::Ok();
}

Result<uint64_t> ParseCount(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Invalid("\"" + std::string(text) + "\" is no whole number");
  }
  return value;
}

Status SetEndpoints(const std::string& text, ClientOptions* options) {
  options->seeds = SplitEndpoints(text);
  return Status::Ok();
}

constexpr auto kCount = &ParseCount;
constexpr auto kBytes = &ParseBytes;
constexpr auto kDuration = &ParseDurationUs;
constexpr Setting kSettings[] = {
    {"endpoints", "LARDER_ENDPOINTS", SetEndpoints},
    {"transport", "LARDER_TRANSPORT", SetText<&ClientOptions::transport>},
    {"token", "LARDER_TOKEN", SetText<&ClientOptions::token>},
    {"name", "LARDER_CLIENT_NAME", SetText<&ClientOptions::client_name>},
    {"io_threads", "LARDER_CLIENT_IO_THREADS", SetParsed<&ClientOptions::io_threads, kCount>},
    {"connections_per_peer", "LARDER_CLIENT_CONNECTIONS_PER_PEER",
     SetParsed<&ClientOptions::connections_per_peer, kCount>},
    {"replicas", "LARDER_CLIENT_REPLICAS", SetParsed<&ClientOptions::replicas, kCount>},
    {"operations_max", "LARDER_CLIENT_OPERATIONS_MAX", SetParsed<&ClientOptions::operations_max, kCount>},
    {"bytes_in_flight_max", "LARDER_CLIENT_BYTES_IN_FLIGHT_MAX",
     SetParsed<&ClientOptions::bytes_in_flight_max, kBytes>},
    {"peer_bytes_in_flight_max", "LARDER_CLIENT_PEER_BYTES_IN_FLIGHT_MAX",
     SetParsed<&ClientOptions::peer_bytes_in_flight_max, kBytes>},
    {"deadline", "LARDER_CLIENT_DEADLINE", SetParsed<&ClientOptions::default_deadline_us, kDuration>},
    {"connect_timeout", "LARDER_CLIENT_CONNECT_TIMEOUT",
     SetParsed<&ClientOptions::connect_timeout_us, kDuration>},
    {"backoff_min", "LARDER_CLIENT_BACKOFF_MIN", SetParsed<&ClientOptions::backoff_min_us, kDuration>},
    {"backoff_max", "LARDER_CLIENT_BACKOFF_MAX", SetParsed<&ClientOptions::backoff_max_us, kDuration>},
    {"spin", "LARDER_CLIENT_SPIN", SetParsed<&ClientOptions::spin_us, kDuration>},
};

std::string Keys() {
  std::string keys;
  for (const Setting& setting : kSettings) keys += (keys.empty() ? "" : ", ") + std::string(setting.key);
  return keys;
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Invalid("cannot open " + path + ": " + std::strerror(errno));
  std::string text(kFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return Invalid("cannot read " + path + ": is it a directory?");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kFileBytesMax) return Invalid(path + " is larger than 1 MiB; that is no config file");
  return text;
}

Result<std::string> TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  const toml::array* list = node.as_array();
  if (list == nullptr) return Invalid("write a text in quotes, a number or a list of texts");
  std::string joined;
  for (const toml::node& item : *list) {
    const auto* text = item.as_string();
    if (text == nullptr) return Invalid("its items are texts in quotes");
    joined += (joined.empty() ? "" : ",") + text->get();
  }
  return joined;
}

Status LoadFile(const std::string& path, ClientOptions* options) {
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  const toml::parse_result parsed = toml::parse(text.value(), path);
  if (!parsed) {
    std::string what(parsed.error().description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    return Invalid(path + ":" + std::to_string(parsed.error().source().begin.line) + ": " + what);
  }
  for (const auto& [key, value] : parsed.table()) {
    const std::string place = path + ":" + std::to_string(value.source().begin.line) + ": ";
    const auto setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                      [&](const Setting& each) { return each.key == key.str(); });
    if (setting == std::end(kSettings)) {
      return Invalid(place + "a client has no setting \"" + std::string(key.str()) + "\"; there are " +
                     Keys());
    }
    const Result<std::string> one = TextOf(value);
    Status set = one.ok() ? setting->set(one.value(), options) : one.status();
    if (!set.ok()) return Invalid(place + std::string(key.str()) + ": " + set.text());
  }
  return Status::Ok();
}

}  // namespace

std::vector<std::string> SplitEndpoints(std::string_view text) {
  std::vector<std::string> endpoints;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
    if (!one.empty()) endpoints.emplace_back(one);
  }
  return endpoints;
}

Status LoadClientOptions(const std::string& path, const Environment& environment, ClientOptions* options) {
  const char* file = path.c_str();
  if (path.empty()) file = environment ? environment("LARDER_CLIENT_CONFIG") : nullptr;
  if (file != nullptr && *file != '\0') LARDER_RETURN_IF_ERROR(LoadFile(file, options));
  if (!environment) return Status::Ok();
  for (const Setting& setting : kSettings) {
    const char* text = environment(setting.variable);
    if (text == nullptr || *text == '\0') continue;
    const Status set = setting.set(text, options);
    if (!set.ok()) return Invalid(std::string(setting.variable) + ": " + set.text());
  }
  return Status::Ok();
}

}  // namespace larder
