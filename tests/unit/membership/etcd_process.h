// A real etcd of one's own: free ports on the loopback address, data in a folder of its own, ended by its
// pid.
#pragma once

#include <sys/types.h>

#include <string>

namespace larder::node {

class EtcdProcess {
 public:
  EtcdProcess();  // running; WaitReady() tells
  ~EtcdProcess();
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  static bool Installed();
  std::string address() const { return "127.0.0.1:" + std::to_string(client_port_); }
  bool WaitReady();                // false: it ended, or does not answer
  void Kill();                     // -9
  void Start(bool empty = false);  // again at the same address, with what it had or without
  void Pause(bool on);
  // etcdctl; its standard output.
  std::string Ctl(const std::string& arguments) const;

 private:
  int client_port_ = 0, peer_port_ = 0;
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace larder::node
