// A get's answer while it is put together. Private to node/owner*.
#pragma once

#include "node/owner/owner_state.h"

namespace larder::node {

struct Owner::State::GetWork {
  GetReply reply;
  transport::SendSegments segments;
  Sending sending;
  uint64_t payload_bytes = 0;
  uint64_t header_bytes = kReplyHeaderSlack;
  Digest reader{};          // who asks
  uint32_t number = 0;      // of the namespace
  uint64_t move_bytes = 0;  // as of its asker
  bool near = false;        // for copies: a miss says nothing about the block
  bool full = false;        // a bound of one reply was reached: the rest is answered busy

  bool Add(const Patch& patch, const Rectangle& piece, const BlockHeader& header, const std::byte* payload,
           uint64_t payload_bytes_of_piece, GetReply::Block* block);
};

}  // namespace larder::node
