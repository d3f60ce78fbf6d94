// The options of a client from a config file and from the environment.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "client/client.h"

namespace larder {

// getenv, or a test's stand-in; nullptr: not set.
using Environment = std::function<const char*(const char* name)>;

// "host:port, host:port" -> its entries; blanks around them and empty entries go.
std::vector<std::string> SplitEndpoints(std::string_view text);

// Settings, each a key of the TOML file and a variable LARDER_CLIENT_<KEY>. Three are shared with the tools
// and have no CLIENT in their name: LARDER_ENDPOINTS, LARDER_TRANSPORT, LARDER_TOKEN.
//   endpoints       list of "host:port" (in the variable: comma-separated)   transport      auto, tcp, shm,
//   ucx token, name     texts                                                    replicas       1..4
//   io_threads      1..16            connections_per_peer   1..8             operations_max
//   bytes_in_flight_max, peer_bytes_in_flight_max   sizes ("256MiB")
//   deadline, connect_timeout, backoff_min, backoff_max, spin   durations ("5s", "20us")
// The variable wins over the file, the file over what `options` has. An unknown key of the file or an unknown
// LARDER_CLIENT_ variable can't be told from a misspelt one: the file's is refused with its line, variables
// are not enumerated. path empty: LARDER_CLIENT_CONFIG's, if set. environment null: none is read.
Status LoadClientOptions(const std::string& path, const Environment& environment, ClientOptions* options);

}  // namespace larder
