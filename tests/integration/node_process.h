// A larder-node in a process of its own, for tests.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace larder::test {

class NodeProcess {
 public:
  // `flags` over the defaults: free ports, 64 MiB, shared memory in an own folder. Returns once it serves.
  explicit NodeProcess(std::vector<std::string> flags = {}, std::string data_listen = "127.0.0.1:0");
  ~NodeProcess();
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  void Signal(int number);
  // Its exit code, or 128 + signal; -1 when it is still there after a minute.
  int Wait();
  // Again, at the addresses that it had.
  void Restart();

  const std::string& data() const { return data_; }
  const std::string& http() const { return http_; }
  bool serves() const { return serves_; }
  // What HTTP answers, head and body; empty: nothing.
  std::string Http(const std::string& path) const;
  int HttpStatus(const std::string& path) const;  // 0: no answer
  double Metric(const std::string& name) const;   // without labels; -1: it is not there

 private:
  void Start();

  std::vector<std::string> flags_;
  std::string folder_, data_, control_, http_;
  pid_t pid_ = -1;
  bool serves_ = false;
};

}  // namespace larder::test
