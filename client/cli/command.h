// What every subcommand of larderctl shares.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "proto/status.h"

namespace CLI {
class App;
}

namespace larder::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a finding, a miss, a node that did not answer
inline constexpr int kExitUsage = 2;

// Flags that every subcommand takes.
struct Globals {
  std::vector<std::string> endpoints;  // data addresses of any nodes; empty: 127.0.0.1:7400
  std::vector<std::string> control;    // control addresses, for nodes whose data address does not answer
  std::string token;
  std::string transport = "auto";
  uint32_t replicas = 1;
  std::string timeout = "2s";
  uint64_t timeout_us = 0;  // of `timeout`, once parsed
  std::string output = "text";
  bool json_flag = false;
  bool json() const { return json_flag || output == "json"; }
};

// Prints `larderctl: text` to standard error.
int Fail(const Status& status, int exit_code = kExitFailed);

// A client of the whole cluster; of one node when `address` is given.
Result<std::unique_ptr<Client>> Connect(const Globals& globals, const std::string& address = "");

// Each adds its subcommands; `run` is set to the one that was chosen.
using Run = std::function<int(const Globals&)>;
void AddSizing(CLI::App* app, Run* run);
void AddStatus(CLI::App* app, Run* run);  // status, ping
void AddTop(CLI::App* app, Run* run);
void AddDoctor(CLI::App* app, Run* run);
void AddNamespaces(CLI::App* app, Run* run);  // namespaces, clear
void AddQuarantine(CLI::App* app, Run* run);  // quarantine, bypass
void AddDrain(CLI::App* app, Run* run);
void AddEvents(CLI::App* app, Run* run);
void AddBlocks(CLI::App* app, Run* run);  // match, explain, locate, get, put

}  // namespace larder::cli
