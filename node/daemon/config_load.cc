// Flags over environment over file over default.
#include "node/daemon/config_load.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "node/version.h"

namespace larder::node {
namespace {

// Variables of the client library and larderctl, which may be set for everything in a container.
constexpr std::string_view kOtherVariables[] = {"LARDER_ENDPOINTS", "LARDER_CONTROL", "LARDER_TOKEN",
                                                "LARDER_TRANSPORT", "LARDER_TENANT",  "LARDER_SALT",
                                                "LARDER_CONFIG"};

struct Given {
  std::map<std::string, std::string, std::less<>> flags;  // knob -> text
  std::string config_path, config_source;
  bool print_config = false, print_reference = false, version = false, help = false;
};

Status UnknownFlag(const std::string& text) {
  const std::string name = text.substr(0, text.find('='));
  if (name.rfind("-", 0) != 0) {
    return Invalid("\"" + text +
                   "\" is left over: larder-node takes only flags (larder-node --help lists them)");
  }
  std::vector<std::string> names = {"--config", "--print-config", "--print-reference", "--version", "--help"};
  for (const Knob& knob : Knobs()) names.push_back(knob.flag());
  const std::string nearest = Nearest(name, names);
  return Invalid(name + " is no flag of larder-node; " +
                 (nearest.empty() ? "larder-node --help lists them" : "did you mean " + nearest + "?"));
}

Status ParseFlags(int argc, const char* const* argv, Given* given) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::map<std::string_view, std::vector<std::string>> texts;
  for (const Knob& knob : Knobs()) {
    CLI::Option* option = app.add_option(knob.flag(), texts[knob.name]);
    if (knob.kind == KnobKind::Switch) {
      option->expected(0, 1);
    } else {
      option->expected(1);
    }
    // Given twice, the last one holds; a list adds up.
    option->multi_option_policy(knob.kind == KnobKind::List ? CLI::MultiOptionPolicy::TakeAll
                                                            : CLI::MultiOptionPolicy::TakeLast);
    if (knob.kind == KnobKind::List) option->allow_extra_args(false)->expected(1, 4096);
  }
  app.add_option("--config", given->config_path);
  app.add_flag("--print-config", given->print_config);
  app.add_flag("--print-reference", given->print_reference);
  app.add_flag("--version", given->version);
  app.add_flag("-h,--help", given->help);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return Invalid(std::string(error.what()) + " (larder-node --help explains every flag)");
  }
  const std::vector<std::string> left = app.remaining();
  if (!left.empty()) return UnknownFlag(left.front());
  for (const Knob& knob : Knobs()) {
    if (app.count(knob.flag()) == 0) continue;
    std::string text;
    for (const std::string& item : texts[knob.name]) text += (text.empty() ? "" : ",") + item;
    if (text.empty() && knob.kind == KnobKind::Switch) text = "true";
    given->flags[std::string(knob.name)] = text;
  }
  if (!given->config_path.empty()) given->config_source = "--config";
  return Status::Ok();
}

Status ApplyEnvironment(const char* const* environment, Given* given, LoadedConfig* loaded) {
  for (; environment != nullptr && *environment != nullptr; environment++) {
    const std::string_view entry(*environment);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !entry.starts_with("LARDER_")) continue;
    const std::string name(entry.substr(0, equals));
    const std::string value(entry.substr(equals + 1));
    if (name == "LARDER_CONFIG" && given->config_path.empty()) {
      given->config_path = value;
      given->config_source = name;
    }
    if (std::ranges::find(kOtherVariables, name) != std::end(kOtherVariables) || IsServiceVariable(name) ||
        name.starts_with("LARDER_CLIENT_"))
      continue;
    std::string knob_name = name.substr(7);
    std::ranges::transform(knob_name, knob_name.begin(), [](unsigned char c) { return std::tolower(c); });
    const Knob* knob = FindKnob(knob_name);
    if (knob == nullptr || knob->variable() != name) {
      std::vector<std::string> names = {"LARDER_CONFIG"};
      for (const Knob& each : Knobs()) names.push_back(each.variable());
      const std::string nearest = Nearest(name, names);
      return Invalid(
          name + " is no variable of larder-node; " +
          (nearest.empty() ? "unset it, or see larder-node --help" : "did you mean " + nearest + "?"));
    }
    if (Status status = SetKnob(*knob, value, &loaded->config); !status.ok()) {
      return Invalid(name + ": " + status.text());
    }
    loaded->sources[knob_name] = name;
  }
  return Status::Ok();
}

Status TakeTenantsFile(LoadedConfig* loaded) {
  const std::string& path = loaded->config.tenants;
  if (path.empty()) return Status::Ok();
  if (!loaded->tenants.empty()) {
    return Invalid("[[tenants]] stand in the config file and a file is named by tenants = \"" + path +
                   "\"; keep one of them");
  }
  Result<std::vector<TenantLimits>> read = ReadTenants(path);
  if (!read.ok()) return read.status();
  loaded->tenants = std::move(read).value();
  return Status::Ok();
}

}  // namespace

bool IsServiceVariable(std::string_view name) {
  if (name == "LARDER_PORT" || name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != name.npos)
    return true;
  const size_t at = name.find("_PORT_");
  if (at == std::string_view::npos) return name.ends_with("_PORT");
  // ..._PORT_7400_TCP with an optional _PROTO, _PORT or _ADDR.
  const std::string_view rest = name.substr(at + 6);
  const size_t digits = rest.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  return rest.substr(digits).starts_with("_TCP") || rest.substr(digits).starts_with("_UDP");
}

Status CheckCredentials(const std::vector<Credential>& credentials) {
  for (size_t i = 0; i < credentials.size(); i++) {
    const Credential& one = credentials[i];
    const std::string which =
        one.name.empty() ? "credential " + std::to_string(i + 1) : "credential \"" + one.name + "\"";
    if (one.name.empty() || one.name.size() > 128)
      return Invalid(which + " needs a name of 1..128 characters");
    if (one.token.size() < 16 || one.token.size() > 256) {
      return Invalid(which + " needs a token of 16..256 characters (openssl rand -hex 16 makes one)");
    }
    if (one.tenant.size() > kTenantBytesMax) return Invalid(which + ": a tenant has at most 128 characters");
    for (size_t j = 0; j < i; j++) {
      if (credentials[j].name == one.name)
        return Invalid(which + " is there twice; give each a name of its own");
      if (credentials[j].token == one.token) {
        return Invalid(which + " has the token of \"" + credentials[j].name +
                       "\"; give each a token of its own");
      }
    }
  }
  return Status::Ok();
}

Result<LoadedConfig> LoadConfig(int argc, const char* const* argv, const char* const* environment) {
  try {
    LoadedConfig loaded;
    Given given;
    LARDER_RETURN_IF_ERROR(ParseFlags(argc, argv, &given));
    if (given.help || given.version || given.print_reference) {
      loaded.asked = Asked::kPrint;
      loaded.output = given.help ? HelpText() : given.version ? VersionText() + "\n" : ConfigReference();
      return loaded;
    }
    LoadedConfig over;  // environment, so that the file can be applied first
    LARDER_RETURN_IF_ERROR(ApplyEnvironment(environment, &given, &over));
    if (!given.config_path.empty()) {
      if (Status status = ApplyFile(given.config_path, &loaded); !status.ok()) {
        return Invalid((given.config_source == "--config" ? "" : given.config_source + ": ") + status.text());
      }
    }
    for (const auto& [name, source] : over.sources) {
      const Knob& knob = *FindKnob(name);
      LARDER_RETURN_IF_ERROR(SetKnob(knob, KnobText(knob, over.config), &loaded.config));
      loaded.sources[name] = source;
    }
    for (const auto& [name, text] : given.flags) {
      const Knob& knob = *FindKnob(name);
      if (Status status = SetKnob(knob, text, &loaded.config); !status.ok()) {
        return Invalid(knob.flag() + ": " + status.text());
      }
      loaded.sources[name] = knob.flag();
    }
    if (!loaded.config.credentials.empty()) {
      if (!loaded.credentials.empty()) {
        return Invalid("[[credentials]] stand in the config file and a file is named by credentials = \"" +
                       loaded.config.credentials + "\"; keep one of them");
      }
      Result<std::vector<Credential>> read = ReadCredentials(loaded.config.credentials);
      if (!read.ok()) return read.status();
      loaded.credentials = std::move(read).value();
    }
    LARDER_RETURN_IF_ERROR(CheckCredentials(loaded.credentials));
    LARDER_RETURN_IF_ERROR(TakeTenantsFile(&loaded));
    LARDER_RETURN_IF_ERROR(CheckTenants(loaded.tenants));
    LARDER_RETURN_IF_ERROR(TakeOwnEntry(&loaded));
    LARDER_RETURN_IF_ERROR(CheckConfig(loaded.config));
    if (given.print_config) {
      loaded.asked = Asked::kPrint;
      loaded.output = PrintConfig(loaded);
    }
    return loaded;
  } catch (const std::exception& error) {
    return Status(Code::kInternal, std::string("reading the configuration: ") + error.what());
  }
}

}  // namespace larder::node
