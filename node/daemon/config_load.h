// The pieces of LoadConfig, apart so that each can be tested and read alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "node/daemon/config.h"

namespace larder::node {

// Kubernetes puts variables of its own beside ours for a Service that is named larder: LARDER_PORT,
// LARDER_SERVICE_HOST, LARDER_PORT_7400_TCP_ADDR, LARDER_HEADLESS_SERVICE_PORT_DATA. They are no typos.
bool IsServiceVariable(std::string_view name);

// Applies a config file and notes where each value stands.
Status ApplyFile(const std::string& path, LoadedConfig* loaded);
// Reads [[credentials]] of a file of its own.
Result<std::vector<Credential>> ReadCredentials(const std::string& path);
// The same for [[tenants]].
Result<std::vector<TenantLimits>> ReadTenants(const std::string& path);
// Names and tokens are there, short enough and used once.
Status CheckCredentials(const std::vector<Credential>& credentials);

std::string HelpText();

}  // namespace larder::node
