// SHA-256 in steps, for the files of this folder.
#pragma once

// OpenSSL's provider interface can fail at run time (a host process may have loaded a provider without
// SHA-256, or be out of memory), and a name that can't be computed leaves a client nothing but to abort.
// The older calls go straight to the assembler code, allocate nothing and cannot fail.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "proto/block_key.h"

namespace larder {

class Sha256Stream {
 public:
  Sha256Stream() { SHA256_Init(&context_); }
  Sha256Stream& Add(ByteView bytes) {
    SHA256_Update(&context_, bytes.data(), bytes.size());
    return *this;
  }
  Sha256Stream& Add(std::string_view text) { return Add(AsBytes(text)); }
  Sha256Stream& AddU32(uint32_t value) { return Add(std::as_bytes(std::span(&value, 1))); }
  // u32 length, then the bytes.
  Sha256Stream& AddText(std::string_view text) {
    return AddU32(static_cast<uint32_t>(text.size())).Add(text);
  }
  Digest Finish() {
    Digest digest;
    SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context_);
    return digest;
  }

 private:
  SHA256_CTX context_;
};

}  // namespace larder
