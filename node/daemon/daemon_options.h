// From configuration to what a Node takes.
#pragma once

#include <optional>
#include <string>

#include "node/daemon/config.h"
#include "node/events/kv_event_publisher.h"
#include "node/node.h"

namespace larder::node {

// Everything but the addresses that are known only once bound. `shm_path`: from PrepareShmPath, empty for
// none. `seed`: random, of the index's hash function.
NodeOptions NodeOptionsOf(const LoadedConfig& loaded, const std::string& shm_path, uint64_t seed);

// What is published of its events, as `node_id`; none: nothing.
std::optional<KvEventOptions> KvEventOptionsOf(const Config& config, const std::string& node_id);

// The address that others use for something bound at `bound`: the advertised host with its port.
std::string AdvertisedAddress(const Config& config, const std::string& bound);

// Nobody needs a credential, and others than this host can connect.
bool OpenToStrangers(const LoadedConfig& loaded);

}  // namespace larder::node
