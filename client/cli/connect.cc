#include <cstdio>

#include "client/cli/command.h"

namespace larder::cli {

int Fail(const Status& status, int exit_code) {
  std::fprintf(stderr, "larderctl: %s\n", status.text().c_str());
  return exit_code;
}

Result<std::unique_ptr<Client>> Connect(const Globals& globals, const std::string& address) {
  ClientOptions options;
  options.seeds = globals.endpoints;
  if (options.seeds.empty()) options.seeds = {"127.0.0.1:7400"};
  if (!address.empty()) options.seeds = {address};
  options.transport = globals.transport;
  options.replicas = globals.replicas;
  options.token = globals.token;
  options.client_name = "larderctl";
  options.io_threads = 1;
  options.connections_per_peer = 1;
  options.default_deadline_us = globals.timeout_us;
  options.connect_timeout_us = globals.timeout_us / 2;  // the other half for another copy
  Result<std::unique_ptr<Client>> client = Client::Open(options, globals.timeout_us);
  if (client.ok()) return client;
  std::string where;
  for (const std::string& seed : options.seeds) where += (where.empty() ? "" : ", ") + seed;
  return Status(client.status().code(), "no node answers at " + where + ": " + client.status().text());
}

}  // namespace larder::cli
