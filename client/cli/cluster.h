// The whole cluster as larderctl sees it: every node that a table names is asked by itself, over the data
// plane and over gRPC, so that what they say can be compared.
#pragma once

#include <string>
#include <vector>

#include "client/cli/command.h"
#include "proto/control.pb.h"
#include "proto/placement.h"

namespace larder::cli {

struct NodeView {
  NodeRecord record;          // by the node itself when it answered, else as others have it
  std::string data_error;     // empty: the data port answered
  uint64_t ping_us = 0;       // round trip over the data plane
  NodeTable table;            // the table that it follows
  std::string control_error;  // empty: the control port answered
  control::v1::GetInfoResponse info;
  uint64_t info_unix_ms = 0;  // when it came, by this host's clock
  control::v1::StatsResponse stats;
  std::string health;  // "SERVING", "NOT_SERVING", ...
};

// Asks the endpoints, then every node that they name, up to sixteen at a time. Sorted by id. Nodes that don't
// answer are in it with their errors.
std::vector<NodeView> LookAtCluster(const Globals& globals);

// The client's table. A static list knows data addresses only: whose control address is missing is asked for
// it.
NodeTable TableWithControl(const Globals& globals, const Client& client);

// Runs work(0) .. work(count - 1) on up to sixteen threads.
void ForEachInParallel(size_t count, const std::function<void(size_t)>& work);

// --- gRPC, one call each; the text of a failure names the address ---
Status AskInfo(const std::string& address, uint64_t timeout_us, control::v1::GetInfoResponse* out);
Status AskStats(const std::string& address, const Globals& globals, control::v1::StatsResponse* out);
Status AskHealth(const std::string& address, uint64_t timeout_us, std::string* out);
Status AskNamespaces(const std::string& address, const Globals& globals,
                     control::v1::NamespacesResponse* out);
Status AskClear(const std::string& address, const Globals& globals, const std::string& hex, uint64_t stamp_ms,
                control::v1::ClearResponse* out);
Status AskDrain(const std::string& address, const Globals& globals, control::v1::DrainResponse* out);
Status AskExplain(const std::string& address, const Globals& globals,
                  const control::v1::ExplainRequest& request, control::v1::ExplainResponse* out);
Status AskMatch(const std::string& address, const Globals& globals, const control::v1::MatchRequest& request,
                control::v1::MatchResponse* out);
Status AskQuarantine(const std::string& address, const Globals& globals, control::v1::QuarantineState* out);
Status AskAddQuarantine(const std::string& address, const Globals& globals,
                        const control::v1::AddQuarantineRequest& request, control::v1::QuarantineState* out);
Status AskLiftQuarantine(const std::string& address, const Globals& globals,
                         const control::v1::LiftQuarantineRequest& request,
                         control::v1::QuarantineState* out);
// Follows a node's events until `take` answers false or the stream ends, which is then a failure.
Status FollowEvents(const std::string& address, const Globals& globals,
                    const control::v1::EventsRequest& request,
                    const std::function<bool(const control::v1::EventsResponse&)>& take);
Status AskBypass(const std::string& address, const Globals& globals, bool on,
                 control::v1::QuarantineState* out);

}  // namespace larder::cli
