#include "tests/unit/membership/dns_world.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace larder::node {

namespace {

constexpr size_t kHeadBytes = 12;

void Put16(std::string* out, size_t value) {
  out->push_back(static_cast<char>(value >> 8 & 0xff));
  out->push_back(static_cast<char>(value & 0xff));
}

std::string Encoded(std::string name) {
  std::string out;
  for (name += '.'; !name.empty(); name.erase(0, name.find('.') + 1)) {
    const std::string part = name.substr(0, name.find('.'));
    out += static_cast<char>(part.size()) + part;
  }
  return out + '\0';
}

}  // namespace

NameServer::NameServer() : addresses_{{kHost, {"127.0.0.1"}}} {
  socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  (void)bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  (void)getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &bytes);
  port_ = ntohs(address.sin_port);
  const timeval patience{0, 50'000};
  (void)setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  thread_ = std::thread([this] { Serve(); });
}

NameServer::~NameServer() {
  stopping_ = true;
  thread_.join();
  close(socket_);
}

void NameServer::AddPort(uint16_t port) {
  const std::lock_guard lock(mutex_);
  ports_.push_back(port);
}

void NameServer::SetAddresses(const std::string& name, std::vector<std::string> ipv4) {
  const std::lock_guard lock(mutex_);
  addresses_[name] = std::move(ipv4);
}

void NameServer::Serve() {
  while (!stopping_) {
    char bytes[4096];
    sockaddr_in asker{};
    socklen_t asker_bytes = sizeof asker;
    const ssize_t got =
        recvfrom(socket_, bytes, sizeof bytes, 0, reinterpret_cast<sockaddr*>(&asker), &asker_bytes);
    if (got < static_cast<ssize_t>(kHeadBytes) || silent_) continue;
    const std::string answer = Answer({bytes, static_cast<size_t>(got)});
    (void)sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&asker), asker_bytes);
  }
}

std::string NameServer::Answer(const std::string& question) {
  size_t at = kHeadBytes;
  std::string name;
  for (; question[at] != 0; at += 1 + static_cast<size_t>(question[at])) {
    name += (name.empty() ? "" : ".") + question.substr(at + 1, static_cast<size_t>(question[at]));
  }
  const int kind = question[at + 2];
  const std::lock_guard lock(mutex_);
  std::vector<std::string> records;
  if (kind == ns_t_srv && name == kService) {
    for (const uint16_t port : ports_) {
      std::string& record = records.emplace_back(4, '\0');
      Put16(&record, port);
      record += Encoded(kHost);
    }
  } else if (kind == ns_t_a) {
    for (const std::string& text : addresses_[name]) {
      in_addr address{};
      (void)inet_pton(AF_INET, text.c_str(), &address);
      records.emplace_back(reinterpret_cast<const char*>(&address), sizeof address);
    }
  }
  const bool known = name == kService || !addresses_[name].empty();
  std::string out = question.substr(0, 2);
  Put16(&out, known ? 0x8180 : 0x8183);
  Put16(&out, 1);
  Put16(&out, records.size());
  out += std::string(4, '\0') + question.substr(kHeadBytes, at + 5 - kHeadBytes);
  for (const std::string& record : records) {
    Put16(&out, 0xc00c);  // the name that was asked for
    Put16(&out, static_cast<size_t>(kind));
    Put16(&out, 1);
    out += std::string("\0\0\0\5", 4);  // seconds
    Put16(&out, record.size());
    out += record;
  }
  return out;
}

}  // namespace larder::node
