// The canonical text of an identity from a client: what is accepted is exactly its own canonical text.
#include "proto/block_header.h"
#include "proto/block_key.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  larder::Digest digest;
  if (larder::FromHex(text, &digest).ok()) LARDER_CHECK(larder::ToHex(digest).size() == text.size());
  const larder::Result<larder::Identity> identity = larder::Identity::Parse(text);
  if (!identity.ok()) return 0;
  LARDER_CHECK(identity.value().CanonicalText() == text);
  larder::Identity copy;
  for (const auto& [name, value] : identity.value().fields()) LARDER_CHECK(copy.Set(name, value).ok());
  LARDER_CHECK(copy.digest() == identity.value().digest());
  const bool valid = identity.value().Validate(true).ok();
  const larder::Result<larder::Grid> grid = larder::GridOf(identity.value());
  if (grid.ok()) {
    LARDER_CHECK(larder::WholeOf(grid.value()).valid());
    LARDER_CHECK(larder::WholeOf(grid.value()).parts() <= larder::kPartsMax);
    // An opaque namespace has its grid whatever else it says.
    LARDER_CHECK(valid || identity.value().Get("kind") == "opaque");
  }
  return 0;
}
