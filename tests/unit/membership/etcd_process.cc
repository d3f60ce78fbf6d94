#include "tests/unit/membership/etcd_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "tests/support/free_port.h"

namespace larder::node {

namespace {

bool Answers(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool answers = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return answers;
}

}  // namespace

bool EtcdProcess::Installed() {
  return access("/usr/bin/etcd", X_OK) == 0;
}

EtcdProcess::EtcdProcess() {
  char name[] = "/tmp/larder-etcd-XXXXXX";
  if (mkdtemp(name) != nullptr) folder_ = name;
  constexpr int kAttempts = 5;
  for (int attempt = 0; attempt < kAttempts && pid_ <= 0; ++attempt) {
    client_port_ = testing::FreePort();
    peer_port_ = testing::FreePort();
    Start();
  }
}

EtcdProcess::~EtcdProcess() {
  Kill();
  std::filesystem::remove_all(folder_);
}

void EtcdProcess::Start(bool empty) {
  if (empty) std::filesystem::remove_all(folder_ + "/data");
  const std::string client = "http://" + address();
  const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port_);
  const std::string data = folder_ + "/data", log = folder_ + "/log", cluster = "default=" + peer;
  pid_ = fork();
  if (pid_ != 0) {
    WaitReady();
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(out, 1);
  dup2(out, 2);
  execl("/usr/bin/etcd", "etcd", "--data-dir", data.c_str(), "--listen-client-urls", client.c_str(),
        "--advertise-client-urls", client.c_str(), "--listen-peer-urls", peer.c_str(),
        "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster", cluster.c_str(), nullptr);
  _exit(127);
}

bool EtcdProcess::WaitReady() {
  for (int i = 0; i < 2000; ++i) {
    if (pid_ <= 0) return false;
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;  // a port that another took: whoever answers there is not ours
      return false;
    }
    if (Answers(client_port_) && Ctl("endpoint health 2>&1").find("is healthy") != std::string::npos)
      return true;
    usleep(10'000);
  }
  return false;
}

void EtcdProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EtcdProcess::Pause(bool on) {
  kill(pid_, on ? SIGSTOP : SIGCONT);
}

std::string EtcdProcess::Ctl(const std::string& arguments) const {
  const std::string command = "ETCDCTL_API=3 etcdctl --endpoints=" + address() + " " + arguments;
  std::string out;
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return out;
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) out += line;
  pclose(pipe);
  return out;
}

}  // namespace larder::node
