#include <algorithm>
#include <charconv>
#include <numeric>

#include "proto/block_header.h"
#include "proto/block_key.h"

namespace larder {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kValueBytesMax = 1024;
constexpr uint32_t kDefaultHeadGroupsMax = 8;

struct NumberField {
  std::string_view name;
  uint32_t min;
  uint32_t max;
};
constexpr NumberField kNumberFields[] = {
    {"block_tokens", 1, 1u << 24},    {"draft_layers", 0, kPartsMax}, {"head_dim", 1, 1u << 20},
    {"head_groups", 1, kPartsMax},    {"kv_heads", 1, 1u << 16},      {"layers", 1, kPartsMax},
    {"weights_epoch", 0, UINT32_MAX},
};

// Anything else as a chain hash could be made to collide, and a collision is a wrong answer.
constexpr std::string_view kStrongHashes[] = {
    "blake2b", "blake2s", "blake3", "larder", "sha256", "sha256_cbor", "sha384", "sha3_256", "sha512",
};

bool IsPlain(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
         c == ':' || c == '/' || c == '+' || c == '-';
}

bool IsName(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || name[0] < 'a' || name[0] > 'z') return false;
  return std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

void AppendEncoded(std::string_view value, std::string* text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (IsPlain(byte)) {
      text->push_back(c);
    } else {
      text->push_back('%');
      text->push_back(kDigits[byte >> 4]);
      text->push_back(kDigits[byte & 15]);
    }
  }
}

bool DecodeValue(std::string_view encoded, std::string* value) {
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      value->push_back(encoded[i]);
      continue;
    }
    uint8_t byte = 0;
    if (i + 2 >= encoded.size()) return false;
    const char* end = encoded.data() + i + 3;
    const auto [stop, error] = std::from_chars(encoded.data() + i + 1, end, byte, 16);
    if (error != std::errc() || stop != end) return false;
    value->push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

// Decimal, no sign, no leading zero: one number has one text.
bool ParseNumber(std::string_view text, uint32_t* number) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && stop == text.data() + text.size();
}

Status ValidateNumbers(const Identity& identity) {
  for (const NumberField& field : kNumberFields) {
    const std::string_view text = identity.Get(field.name);
    if (text.empty()) continue;
    uint32_t number = 0;
    if (!ParseNumber(text, &number) || number < field.min || number > field.max) {
      return Invalid("identity: " + std::string(field.name) + "=" + std::string(text) +
                     " is not a number from " + std::to_string(field.min) + " to " +
                     std::to_string(field.max));
    }
  }
  return Status::Ok();
}

// Of a field that ValidateNumbers accepted.
uint32_t NumberOr(const Identity& identity, std::string_view name, uint32_t fallback) {
  uint32_t number = fallback;
  const std::string_view text = identity.Get(name);
  if (!text.empty()) ParseNumber(text, &number);
  return number;
}

}  // namespace

Status Identity::Set(std::string_view name, std::string_view value) {
  if (!IsName(name)) {
    return Invalid("identity: '" + std::string(name.substr(0, kNameBytesMax)) +
                   "' is no field name; use [a-z][a-z0-9_]{0,63}");
  }
  if (value.size() > kValueBytesMax) {
    return Invalid("identity: the value of " + std::string(name) + " has " + std::to_string(value.size()) +
                   " bytes; the limit is " + std::to_string(kValueBytesMax));
  }
  const auto old = fields_.find(std::string(name));
  const std::string old_value = old == fields_.end() ? std::string() : old->second;
  if (old != fields_.end()) fields_.erase(old);
  if (value.empty()) return Status::Ok();
  fields_.emplace(name, value);
  if (CanonicalText().size() <= kIdentityBytesMax) return Status::Ok();
  fields_.erase(std::string(name));
  if (!old_value.empty()) fields_.emplace(name, old_value);
  return Invalid("identity: the text would pass " + std::to_string(kIdentityBytesMax) + " bytes");
}

std::string_view Identity::Get(std::string_view name) const {
  const auto field = fields_.find(std::string(name));
  return field == fields_.end() ? std::string_view() : std::string_view(field->second);
}

std::string Identity::CanonicalText() const {
  std::string text;
  for (const auto& [name, value] : fields_) {
    text.append(name).push_back('=');
    AppendEncoded(value, &text);
    text.push_back('\n');
  }
  return text;
}

Result<Identity> Identity::Parse(std::string_view canonical_text) {
  if (canonical_text.size() > kIdentityBytesMax) {
    return Invalid("identity: the text has " + std::to_string(canonical_text.size()) +
                   " bytes; the limit is " + std::to_string(kIdentityBytesMax));
  }
  Identity identity;
  std::string_view rest = canonical_text;
  while (!rest.empty()) {
    const size_t line_bytes = rest.find('\n');
    if (line_bytes == std::string_view::npos) return Invalid("identity: the last line has no end");
    const std::string_view line = rest.substr(0, line_bytes);
    rest.remove_prefix(line_bytes + 1);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) return Invalid("identity: a line has no '='");
    const std::string_view name = line.substr(0, equals);
    std::string value;
    if (!IsName(name)) return Invalid("identity: a line has no valid field name");
    if (!DecodeValue(line.substr(equals + 1), &value) || value.size() > kValueBytesMax) {
      return Invalid("identity: the value of " + std::string(name) + " is no encoded text");
    }
    identity.fields_.emplace(name, std::move(value));
  }
  // Order, doubles, empty values, needless or lower-case escapes: all show here.
  if (identity.CanonicalText() != canonical_text ||
      std::ranges::any_of(identity.fields_, [](const auto& field) { return field.second.empty(); })) {
    return Invalid("identity: the text is not canonical (names sorted and once, values encoded as needed)");
  }
  return identity;
}

Status Identity::Validate(bool allow_weak_hash) const {
  const std::string_view kind = Get("kind");
  if (kind != "kv" && kind != "opaque") {
    return Invalid("identity: kind must be \"kv\" or \"opaque\", not \"" + std::string(kind) + "\"");
  }
  LARDER_RETURN_IF_ERROR(ValidateNumbers(*this));
  const std::string_view hash = Get("hash");
  if (!allow_weak_hash && !hash.empty() &&
      std::ranges::find(kStrongHashes, hash) == std::end(kStrongHashes)) {
    return Invalid("identity: hash=" + std::string(hash) +
                   " is not known to be cryptographic; use sha256 or sha256_cbor, or allow weak hashes");
  }
  return Status::Ok();
}

Digest Identity::digest() const {
  return Sha256(AsBytes(CanonicalText()));
}

Result<Grid> GridOf(const Identity& identity) {
  const std::string_view kind = identity.Get("kind");
  if (kind == "opaque") return Grid{};
  if (kind != "kv") return Invalid("identity: kind must be \"kv\" or \"opaque\"");
  LARDER_RETURN_IF_ERROR(ValidateNumbers(identity));
  uint32_t head_groups = std::gcd(NumberOr(identity, "kv_heads", 1), kDefaultHeadGroupsMax);
  if (identity.Get("attention") == "mla") head_groups = 1;
  head_groups = NumberOr(identity, "head_groups", head_groups);
  const uint32_t layers = NumberOr(identity, "layers", 1) + NumberOr(identity, "draft_layers", 0);
  if (uint64_t{layers} * head_groups > kPartsMax) {
    return Invalid("identity: " + std::to_string(layers) + " layers x " + std::to_string(head_groups) +
                   " head groups pass " + std::to_string(kPartsMax) + " parts; lower head_groups");
  }
  return Grid{static_cast<uint16_t>(layers), static_cast<uint16_t>(head_groups)};
}

}  // namespace larder
