// The calls of etcd that membership needs, over any of several endpoints: the one that answered last is asked
// first, one that does not answer is left for the next. Every call ends by its deadline.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "node/membership/etcd.grpc.pb.h"
#include "node/membership/etcd_options.h"
#include "proto/status.h"

namespace larder::node {

// Thread-safe.
class EtcdClient {
 public:
  // kInvalid: a file can't be read.
  static Result<std::unique_ptr<EtcdClient>> Open(const EtcdOptions& options);

  Status Range(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response);
  Status Txn(const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response);
  Result<int64_t> GrantLease(int64_t ttl_s);
  Status RevokeLease(int64_t lease);
  // kNotFound: it has expired.
  Status KeepAlive(int64_t lease);
  // Events of all keys from `prefix` on, from `revision` on, until one fails or Stop: `seen` is called for
  // each response on the calling thread. kNotFound: `revision` was compacted away, read everything anew.
  Status Watch(const std::string& prefix, int64_t revision,
               const std::function<void(const etcdserverpb::WatchResponse&)>& seen);
  // Ends a running Watch, and every later call at once.
  void Stop();

 private:
  explicit EtcdClient(const EtcdOptions& options) : options_(options) {}

  // One try at each endpoint; signs in anew once when the token is not good any more.
  Status Call(
      const std::function<grpc::Status(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*)>& call);
  Status SignIn(size_t endpoint);
  void Prepare(grpc::ClientContext* context, bool deadline);
  std::string token() const;

  const EtcdOptions options_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<size_t> current_{0};
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  std::string token_;
  grpc::ClientContext* watching_ = nullptr;
};

}  // namespace larder::node
