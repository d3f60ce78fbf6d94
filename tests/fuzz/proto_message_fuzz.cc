// A transport header from a peer: envelope, then the record of its verb. What is accepted encodes to
// something that is accepted and equal. As nothing ties a record to one reader, each record also goes to
// every decoder.
#include "proto/message.h"

namespace larder {
namespace {

template <typename Message>
void Try(const Envelope& envelope, ByteView record) {
  Message body;
  if (!Decode(record, &body).ok()) return;
  const Bytes again = Encode(envelope, body);
  Envelope same_envelope;
  ByteView same_record;
  LARDER_CHECK(again.size() <= kMessageBytesMax + 28);
  LARDER_CHECK(DecodeEnvelope(again, &same_envelope, &same_record).ok());
  Message same;
  LARDER_CHECK(Decode(same_record, &same).ok());
  LARDER_CHECK(same == body);
}

void TryAll(const Envelope& envelope, ByteView record) {
#define LARDER_TRY(Name) Try<Name>(envelope, record);
  LARDER_MESSAGES(LARDER_TRY)
#undef LARDER_TRY
}

}  // namespace
}  // namespace larder

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const larder::ByteView bytes = std::as_bytes(std::span(data, size));
  larder::Envelope envelope;
  larder::ByteView record;
  if (larder::DecodeEnvelope(bytes, &envelope, &record).ok()) larder::TryAll(envelope, record);
  // A changed length fails the envelope; past it, the decoders see the rest all the same.
  if (size > 28) larder::TryAll({}, bytes.subspan(28));
  std::vector<larder::ChainHash> hashes;
  if (larder::DecodeHashes(bytes, static_cast<uint32_t>(size / 32), &hashes).ok()) {
    LARDER_CHECK(hashes.size() * 32 == size);
  }
  return 0;
}
