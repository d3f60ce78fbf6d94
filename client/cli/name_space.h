// Which namespace a command works in: an identity from flags or a file, a tenant and its salt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/cli/command.h"

namespace larder::cli {

struct NamespaceFlags {
  std::string identity_path;        // canonical text or a JSON object; "-": standard input
  std::vector<std::string> fields;  // name=value, over what the file says
  std::string tenant, salt;
  bool given() const { return !identity_path.empty() || !fields.empty(); }
};

std::shared_ptr<NamespaceFlags> AddNamespaceFlags(CLI::App* command);

// `text`: as of IdentityFromText. `fields` are set over it. With neither: an
// opaque identity that larderctl keeps its files under.
Result<Identity> IdentityFrom(const std::string& text, const std::vector<std::string>& fields);

Result<NamespaceHandle> OpenNamespace(const NamespaceFlags& flags, Client* client);

}  // namespace larder::cli
