// A child process that runs tests/support/transport_peer.cc.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace larder::transport {

class PeerProcess {
 public:
  // The program's arguments; `cpu` >= 0 pins it.
  explicit PeerProcess(const std::vector<std::string>& arguments, int cpu = -1);
  ~PeerProcess();  // kills and reaps it
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Reads lines until one begins with `prefix`, and returns what stands behind it; "?" after 30 s or at the
  // end.
  std::string Expect(const std::string& prefix);
  void Signal(int signal);
  void Kill();  // SIGKILL, and waits until it is gone
  // Killed by its own connection's thread, between two steps of the transport; waits until it is gone.
  void KillBetweenSteps();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::string read_;
};

}  // namespace larder::transport
