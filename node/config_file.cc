// The config file: TOML, flat keys, and [[credentials]].
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "node/config_load.h"

namespace larder::node {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

Result<toml::table> ReadToml(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Invalid("cannot open " + path + ": " + std::strerror(errno));
  std::string text(kFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return Invalid("cannot read " + path + ": is it a directory?");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kFileBytesMax) return Invalid(path + " is larger than 1 MiB; that is no config file");
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    return Invalid(path + ":" + std::to_string(error.source().begin.line) + ": " + what);
  }
}

std::string Place(const std::string& path, const toml::node& node) {
  return path + ":" + std::to_string(node.source().begin.line);
}

// The text that SetKnob takes. TOML's own numbers and switches are fine where the knob has no unit to forget.
Result<std::string> TextOf(const Knob& knob, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) {
    if (number->get() < 0) return Invalid("it can't be negative; it may be " + knob.range());
    return std::to_string(number->get());
  }
  if (const auto* truth = node.as_boolean(); truth != nullptr && knob.kind == KnobKind::Switch) {
    return std::string(truth->get() ? "true" : "false");
  }
  if (const auto* list = node.as_array(); list != nullptr && knob.kind == KnobKind::List) {
    std::string joined;
    for (const toml::node& item : *list) {
      const auto* text = item.as_string();
      if (text == nullptr) return Invalid("its items are texts in quotes");
      joined += (joined.empty() ? "" : ",") + text->get();
    }
    return joined;
  }
  return Invalid("its value has the wrong type; it may be " + knob.range() + ", in quotes");
}

Result<std::vector<Credential>> CredentialsOf(const std::string& path, const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr || !list->is_homogeneous(toml::node_type::table)) {
    return Invalid(Place(path, node) + ": write credentials as [[credentials]] with name, token and tenant");
  }
  static const std::string kFields[] = {"name", "token", "tenant"};
  std::vector<Credential> out;
  for (const toml::node& item : *list) {
    Credential one;
    for (const auto& [key, value] : *item.as_table()) {
      std::string* field = key == "name"     ? &one.name
                           : key == "token"  ? &one.token
                           : key == "tenant" ? &one.tenant
                                             : nullptr;
      if (field == nullptr) {
        const std::string nearest = Nearest(key.str(), kFields);
        return Invalid(Place(path, value) + ": a credential has no \"" + std::string(key.str()) + "\"; " +
                       (nearest.empty() ? "it has name, token, tenant" : "did you mean " + nearest + "?"));
      }
      const auto* text = value.as_string();
      if (text == nullptr)
        return Invalid(Place(path, value) + ": " + std::string(key.str()) + " is a text in quotes");
      *field = text->get();
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

Status ApplyFile(const std::string& path, LoadedConfig* loaded) {
  Result<toml::table> table = ReadToml(path);
  if (!table.ok()) return table.status();
  for (const auto& [key, node] : table.value()) {
    const std::string name(key.str());
    if (name == "credentials" && node.is_array()) {
      Result<std::vector<Credential>> read = CredentialsOf(path, node);
      if (!read.ok()) return read.status();
      loaded->credentials = std::move(read).value();
      continue;
    }
    const Knob* knob = FindKnob(name);
    if (knob == nullptr) {
      std::vector<std::string> names;
      for (const Knob& each : Knobs()) names.emplace_back(each.name);
      const std::string nearest = Nearest(name, names);
      return Invalid(
          Place(path, node) + ": \"" + name + "\" is no setting of larder-node; " +
          (nearest.empty() ? "larder-node --print-config shows all" : "did you mean " + nearest + "?"));
    }
    const Result<std::string> text = TextOf(*knob, node);
    const Status status = text.ok() ? SetKnob(*knob, text.value(), &loaded->config) : text.status();
    if (!status.ok()) return Invalid(Place(path, node) + ": " + name + ": " + status.text());
    loaded->sources[name] = Place(path, node);
  }
  return Status::Ok();
}

Result<std::vector<Credential>> ReadCredentials(const std::string& path) {
  Result<toml::table> table = ReadToml(path);
  if (!table.ok()) return table.status();
  for (const auto& [key, node] : table.value()) {
    if (key != "credentials") {
      return Invalid(Place(path, node) + ": only [[credentials]] may stand in a credentials file, not \"" +
                     std::string(key.str()) + "\"");
    }
  }
  const toml::node* node = table.value().get("credentials");
  if (node == nullptr)
    return Invalid(path + " has no [[credentials]]; a node that trusts everybody names no file");
  return CredentialsOf(path, *node);
}

}  // namespace larder::node
