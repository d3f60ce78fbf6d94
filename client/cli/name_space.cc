#include "client/cli/name_space.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "client/config/identity_text.h"

namespace larder::cli {
namespace {

Result<std::string> ReadAll(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::ifstream in(path, std::ios::binary);
    if (!in) return Invalid("cannot open " + path + ": " + std::strerror(errno));
    text.resize(kIdentityBytesMax * 2);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  }
  if (text.size() > kIdentityBytesMax) return Invalid(path + ": an identity has at most 16 KiB");
  if (text.empty()) return Invalid(path + " is empty, or no file");
  return text;
}

}  // namespace

std::shared_ptr<NamespaceFlags> AddNamespaceFlags(CLI::App* command) {
  auto flags = std::make_shared<NamespaceFlags>();
  command->add_option("--identity", flags->identity_path,
                      "file with the identity, as canonical text or JSON; - reads standard input");
  command->add_option("--field", flags->fields, "identity field name=value, over the file's; repeat it")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--tenant", flags->tenant, "tenant")->envname("LARDER_TENANT");
  command->add_option("--salt", flags->salt, "the tenant's salt")->envname("LARDER_SALT");
  return flags;
}

Result<Identity> IdentityFrom(const std::string& text, const std::vector<std::string>& fields) {
  Identity identity;
  if (text.empty() && fields.empty()) {
    LARDER_RETURN_IF_ERROR(identity.Set("kind", "opaque"));
    LARDER_RETURN_IF_ERROR(identity.Set("model", "larderctl"));
    return identity;
  }
  if (!text.empty()) {
    Result<Identity> parsed = IdentityFromText(text);
    if (!parsed.ok()) return parsed.status();
    identity = std::move(parsed).value();
  }
  for (const std::string& field : fields) {
    const size_t equals = field.find('=');
    if (equals == std::string::npos) return Invalid("--field " + field + ": write it as name=value");
    LARDER_RETURN_IF_ERROR(identity.Set(field.substr(0, equals), field.substr(equals + 1)));
  }
  return identity;
}

Result<NamespaceHandle> OpenNamespace(const NamespaceFlags& flags, Client* client) {
  std::string text;
  if (!flags.identity_path.empty()) {
    Result<std::string> read = ReadAll(flags.identity_path);
    if (!read.ok()) return read.status();
    text = std::move(read).value();
  }
  const Result<Identity> identity = IdentityFrom(text, flags.fields);
  if (!identity.ok()) return identity.status();
  return client->OpenNamespace(identity.value(), flags.tenant, flags.salt);
}

}  // namespace larder::cli
