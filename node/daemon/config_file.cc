// The config file: TOML, flat keys, [[credentials]] and [[tenants]].
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "node/daemon/config_load.h"
#include "proto/units.h"

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

// The tables of [[name]], each of texts under these fields.
using TextTable = std::map<std::string, std::string, std::less<>>;
Result<std::vector<TextTable>> TablesOf(const std::string& path, const std::string& name,
                                        std::span<const std::string> fields, const toml::node& node) {
  std::string listed;
  for (const std::string& field : fields) listed += (listed.empty() ? "" : ", ") + field;
  const toml::array* list = node.as_array();
  if (list == nullptr || !list->is_homogeneous(toml::node_type::table)) {
    return Invalid(Place(path, node) + ": write " + name + " as [[" + name + "]] with " + listed);
  }
  const std::string one = name.substr(0, name.size() - 1);
  std::vector<TextTable> out;
  for (const toml::node& item : *list) {
    TextTable& table = out.emplace_back();
    for (const auto& [key, value] : *item.as_table()) {
      if (std::ranges::find(fields, key.str()) == fields.end()) {
        const std::string nearest = Nearest(key.str(), fields);
        return Invalid(Place(path, value) + ": a " + one + " has no \"" + std::string(key.str()) + "\"; " +
                       (nearest.empty() ? "it has " + listed : "did you mean " + nearest + "?"));
      }
      const auto* text = value.as_string();
      if (text == nullptr)
        return Invalid(Place(path, value) + ": " + std::string(key.str()) + " is a text in quotes");
      table[std::string(key.str())] = text->get();
    }
  }
  return out;
}

Result<std::vector<Credential>> CredentialsOf(const std::string& path, const toml::node& node) {
  static const std::string kFields[] = {"name", "token", "tenant"};
  Result<std::vector<TextTable>> tables = TablesOf(path, "credentials", kFields, node);
  if (!tables.ok()) return tables.status();
  std::vector<Credential> out;
  for (TextTable& table : tables.value()) out.push_back({table["name"], table["token"], table["tenant"]});
  return out;
}

Result<std::vector<TenantLimits>> TenantsOf(const std::string& path, const toml::node& node) {
  static const std::string kFields[] = {"name", "quota", "ssd_quota", "ttl", "pinned", "pin_max", "replicas"};
  Result<std::vector<TextTable>> tables = TablesOf(path, "tenants", kFields, node);
  if (!tables.ok()) return tables.status();
  std::vector<TenantLimits> out;
  for (const TextTable& table : tables.value()) {
    TenantLimits& limits = out.emplace_back();
    const auto name = table.find("name");
    if (name == table.end()) {
      return Invalid(Place(path, node) +
                     ": a tenant needs a name; \"\" is who names no tenant, \"*\" every " +
                     "tenant without limits of its own");
    }
    limits.name = name->second;
    for (const auto& [field, text] : table) {
      if (field == "name") continue;
      const bool bytes = field == "quota" || field == "ssd_quota" || field == "pinned";
      const KnobKind kind = bytes                 ? KnobKind::Bytes
                            : field == "replicas" ? KnobKind::Count
                                                  : KnobKind::Duration;
      const Result<uint64_t> value = ParseNumber(kind, text);
      if (!value.ok()) {
        return Invalid(path + ": tenant \"" + limits.name + "\": " + field + ": " + value.status().text());
      }
      if (field == "replicas") {
        limits.replicas = static_cast<uint32_t>(std::min<uint64_t>(value.value(), UINT32_MAX));
        continue;
      }
      uint64_t* const into = field == "ssd_quota" ? &limits.ssd_quota_bytes
                             : field == "quota"   ? &limits.quota_bytes
                             : field == "pinned"  ? &limits.pinned_bytes_max
                             : field == "ttl"     ? &limits.ttl_us
                                                  : &limits.pin_us_max;
      *into = value.value();
    }
  }
  return out;
}

// Of a file that may hold nothing but tables of this name.
Result<toml::table> OnlyTables(const std::string& path, const std::string& name, const std::string& without) {
  Result<toml::table> table = ReadToml(path);
  if (!table.ok()) return table.status();
  for (const auto& [key, node] : table.value()) {
    if (key == name) continue;
    return Invalid(Place(path, node) + ": only [[" + name + "]] may stand in a " + name + " file, not \"" +
                   std::string(key.str()) + "\"");
  }
  if (table.value().get(name) == nullptr) return Invalid(path + " has no [[" + name + "]]; " + without);
  return table;
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
    if (name == "tenants" && node.is_array()) {
      Result<std::vector<TenantLimits>> read = TenantsOf(path, node);
      if (!read.ok()) return read.status();
      loaded->tenants = std::move(read).value();
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
  Result<toml::table> table = OnlyTables(path, "credentials", "a node that trusts everybody names no file");
  if (!table.ok()) return table.status();
  return CredentialsOf(path, *table.value().get("credentials"));
}

Result<std::vector<TenantLimits>> ReadTenants(const std::string& path) {
  Result<toml::table> table = OnlyTables(path, "tenants", "a node without limits names no file");
  if (!table.ok()) return table.status();
  return TenantsOf(path, *table.value().get("tenants"));
}

}  // namespace larder::node
