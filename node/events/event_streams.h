// The control plane's event streams: a bounded number of them, each on a thread of its own while it lasts,
// each with one message under way. A reader that takes nothing for long gives its place to the next that
// comes.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include <list>
#include <mutex>
#include <string>

#include "node/node.h"
#include "proto/control.pb.h"

namespace larder::node {

class EventStreams {
 public:
  // Returns when the caller has gone or the node ends. `tenant`: the only one it may hear of; empty: all.
  grpc::Status Serve(Node* node, const std::string& tenant, grpc::ServerContext* context,
                     const control::v1::EventsRequest& request,
                     grpc::ServerWriter<control::v1::EventsResponse>* writer);

 private:
  struct Stream {
    grpc::ServerContext* context = nullptr;
    uint64_t writing_since_us = 0;  // 0: the reader has taken all
  };
  using Place = std::list<Stream>::iterator;
  bool Take(grpc::ServerContext* context, Node* node, Place* place);
  void Leave(Place place, Node* node);
  void Mark(Place place, uint64_t writing_since_us);

  std::mutex mutex_;
  std::list<Stream> streams_;
};

}  // namespace larder::node
