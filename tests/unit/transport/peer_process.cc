#include "tests/unit/transport/peer_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace larder::transport {

PeerProcess::PeerProcess(const std::vector<std::string>& arguments, int cpu) {
  int in[2], out[2];
  EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  std::vector<std::string> words = {TRANSPORT_PEER};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    if (cpu >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<size_t>(cpu), &set);
      sched_setaffinity(0, sizeof(set), &set);
    }
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
}

PeerProcess::~PeerProcess() {
  Kill();
  close(input_);
  close(output_);
}

std::string PeerProcess::Expect(const std::string& prefix) {
  for (;;) {
    const size_t end = read_.find('\n');
    if (end != std::string::npos) {
      const std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      if (line.rfind(prefix, 0) == 0) return line.substr(prefix.size());
      continue;
    }
    pollfd readable{output_, POLLIN, 0};
    char bytes[4096];
    const ssize_t count = poll(&readable, 1, 30'000) == 1 ? read(output_, bytes, sizeof(bytes)) : 0;
    if (count <= 0) return "?";
    read_.append(bytes, static_cast<size_t>(count));
  }
}

void PeerProcess::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

void PeerProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void PeerProcess::KillBetweenSteps() {
  EXPECT_EQ(write(input_, "k", 1), 1);
  // At the end of its stdout it is gone, or on its way.
  EXPECT_EQ(Expect("nothing that it says"), "?");
  Kill();
}

}  // namespace larder::transport
