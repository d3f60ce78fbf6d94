#include "node/node_record.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>

namespace larder::node {

namespace {

// "host" and "port" of "host:port", the host with its brackets.
std::pair<std::string, std::string> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "[::]" || host == "*" || host.empty();
}

Result<std::string> Advertised(const std::string& bound, const std::string& advertise) {
  auto [host, port] = Split(bound);
  if (!advertise.empty()) {
    const bool bare_v6 = advertise.find(':') != std::string::npos && advertise.front() != '[';
    host = bare_v6 ? "[" + advertise + "]" : advertise;
  }
  if (IsWildcard(host)) {
    return Invalid("nobody can connect to " + bound +
                   ": say by which host others reach this node (advertise)");
  }
  return host + ":" + port;
}

uint64_t UnixUs() {
  using std::chrono::duration_cast;
  return static_cast<uint64_t>(
      duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace

std::string HostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

Result<NodeRecord> MakeRecord(const NodeOptions& options, const BoundAddresses& bound) {
  NodeRecord record;
  Result<std::string> data = Advertised(bound.data, options.advertise);
  if (!data.ok()) return data.status();
  record.data_address = std::move(data).value();
  if (!bound.ucx.empty()) {
    Result<std::string> ucx = Advertised(bound.ucx, options.advertise);
    if (!ucx.ok()) return ucx.status();
    record.ucx_address = std::move(ucx).value();
  }
  record.id = options.node_id.empty() ? record.data_address : options.node_id;
  record.incarnation = UnixUs();
  record.control_address = options.control_address;
  record.http_address = options.http_address;
  record.host_id = HostId();
  record.shm_path = bound.shm_path;
  record.weight = options.weight;
  record.zone = options.zone;
  record.wire_min = kWireVersionMin;
  record.wire_max = kWireVersionMax;
  record.build = LARDER_BUILD;
  // What the table's decoder would refuse at every client is refused here, once.
  NodeTable alone;
  alone.epoch = 1;
  alone.nodes = {record};
  Bytes bytes;
  EncodeTable(alone, &bytes);
  const Result<NodeTable> decoded = DecodeTable(bytes);
  if (!decoded.ok()) return Invalid("this node's record: " + decoded.status().text());
  return record;
}

std::string NewNodeId(const NodeOptions& options) {
  const std::string& listen = options.data_listen;
  const size_t colon = listen.rfind(':');
  const std::string port = colon == std::string::npos ? "0" : listen.substr(colon + 1);
  if (port != "0") {
    return (options.advertise.empty() ? listen.substr(0, colon) : options.advertise) + ":" + port;
  }
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) number = UnixUs();
  char text[24];
  std::snprintf(text, sizeof text, "node-%016llx", static_cast<unsigned long long>(number));
  return text;
}

NodeTable TableWith(const NodeTable& table, const NodeRecord& self) {
  NodeTable out = table;
  NodeRecord own = self;
  for (const NodeRecord& record : out.nodes) {
    if (record.id == self.id && record.incarnation == self.incarnation) own.state = record.state;
  }
  std::erase_if(out.nodes, [&](const NodeRecord& record) { return record.id == self.id; });
  out.nodes.push_back(std::move(own));
  out.Normalize();
  return out;
}

}  // namespace larder::node
