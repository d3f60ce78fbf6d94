// One well-formed example of everything that proto encodes: round trips, golden vectors and fuzz seeds.
//
// The values are arbitrary but fixed: a change here changes golden vectors, so add samples, don't edit.
#pragma once

#include "proto/block_header.h"
#include "proto/message.h"
#include "proto/placement.h"

namespace larder::testing {

// 32 bytes: first, first + 1, ...
Digest DigestFrom(uint8_t first);
ChainHash HashFrom(uint8_t first);

Identity SampleIdentity();
BlockHeader PlainHeader();  // one part, nothing optional
BlockHeader FullHeader();   // 2 x 3 parts, codec data, constituents
// FullHeader with two extensions of types that version 1 doesn't know.
Bytes ExtendedHeaderBytes();
// Corrects header_bytes and the checksum of a header that a test tampered with.
void SealHeader(Bytes* header);

NodeTable SampleTable();                                           // three nodes, all fields used
NodeTable TableOf(uint32_t nodes, std::string_view prefix = "n");  // n0000, n0001, ...; weight 1
// Corrects the checksum of a table that a test tampered with.
void SealTable(Bytes* table);

// The envelope that such a message travels with, and one example of it.
template <typename Message>
Envelope EnvelopeOf();
template <typename Message>
Message Sample();
#define LARDER_DECLARE(Name)   \
  template <>                  \
  Envelope EnvelopeOf<Name>(); \
  template <>                  \
  Name Sample<Name>();
LARDER_MESSAGES(LARDER_DECLARE)
#undef LARDER_DECLARE

// The record's bytes of an encoded message. They live as long as `message`.
ByteView RecordOf(const Bytes& message);

}  // namespace larder::testing
