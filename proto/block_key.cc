#include "proto/block_key.h"

#include "proto/sha256.h"

namespace larder {
namespace {

int HexValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

Digest Sha256(ByteView bytes) {
  return Sha256Stream().Add(bytes).Finish();
}

std::string ToHex(ByteView bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (std::byte byte : bytes) {
    text.push_back(kDigits[static_cast<uint8_t>(byte) >> 4]);
    text.push_back(kDigits[static_cast<uint8_t>(byte) & 15]);
  }
  return text;
}

Status FromHex(std::string_view text, Digest* out) {
  if (text.size() != 2 * out->size()) {
    return Invalid("a digest has 64 hex digits; this has " + std::to_string(text.size()) + " characters");
  }
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexValue(text[2 * i]);
    const int low = HexValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return Invalid("a digest has hex digits only");
    digest[i] = static_cast<std::byte>(high * 16 + low);
  }
  *out = digest;
  return Status::Ok();
}

Namespace NamespaceOf(const Identity& identity, std::string_view tenant, std::string_view salt) {
  Sha256Stream stream;
  stream.Add("larder namespace 1\n").Add(ByteView(identity.digest())).AddText(tenant).AddText(salt);
  return {stream.Finish()};
}

std::vector<ChainHash> ChainHashes(std::span<const uint32_t> tokens, uint32_t block_tokens) {
  std::vector<ChainHash> hashes;
  if (block_tokens == 0) return hashes;
  hashes.reserve(tokens.size() / block_tokens);
  ChainHash parent;
  while (tokens.size() >= block_tokens) {
    Sha256Stream stream;
    stream.Add("larder chain 1\n").Add(ByteView(parent.bytes)).AddU32(block_tokens);
    parent = {stream.Add(std::as_bytes(tokens.first(block_tokens))).Finish()};
    hashes.push_back(parent);
    tokens = tokens.subspan(block_tokens);
  }
  return hashes;
}

ChainHash NextLink(const ChainHash& parent, ByteView bytes) {
  return {Sha256Stream().Add("larder link 1\n").Add(ByteView(parent.bytes)).Add(bytes).Finish()};
}

}  // namespace larder
