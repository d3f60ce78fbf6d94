// A larder-node as users have it: a process of its own, on ports of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace larder::bench {

struct NodeSpec {
  std::string program;
  uint64_t memory_bytes = 0;
  std::string transport;           // "tcp", "shm", "ucx": what it has to serve besides tcp
  std::vector<std::string> flags;  // further ones
};

class NodeProcess {
 public:
  // Returns once the node serves and has touched its memory; nullptr with a sentence in `error`.
  static std::unique_ptr<NodeProcess> Start(const NodeSpec& spec, std::string* error);
  ~NodeProcess();  // ends it
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& data_address() const { return data_address_; }
  // A value of /metrics by its name and labels as they stand there; negative when it is not there.
  double Metric(const std::string& name) const;
  // Memory that is neither file nor shared: all but the arena's slabs.
  uint64_t AnonymousBytes() const;

 private:
  NodeProcess() = default;
  bool WaitUntilReady(std::string* error);

  pid_t pid_ = -1;
  std::string folder_;
  std::string data_address_;
  std::string http_address_;
};

}  // namespace larder::bench
