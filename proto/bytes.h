// Views of bytes, and the little-endian writer and reader that every format in this folder uses.
//
// A Reader never reads past its end: after the first short read it stays failed, returns zeros, and
// ok() is false, so a decoder checks once at its end. Writers append to a vector.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace larder {

static_assert(std::endian::native == std::endian::little, "Larder's formats are little-endian");

using ByteView = std::span<const std::byte>;
using Bytes = std::vector<std::byte>;

inline ByteView AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class Writer {
 public:
  explicit Writer(Bytes* out) : out_(out) {}
  void U8(uint8_t value) { Raw(&value, 1); }
  void U16(uint16_t value) { Raw(&value, 2); }
  void U32(uint32_t value) { Raw(&value, 4); }
  void U64(uint64_t value) { Raw(&value, 8); }
  void Raw(const void* data, size_t bytes) {
    if (bytes == 0) return;
    const size_t at = out_->size();
    out_->resize(at + bytes);
    std::memcpy(out_->data() + at, data, bytes);
  }
  void View(ByteView view) { Raw(view.data(), view.size()); }
  // u32 length, then the bytes.
  void Text(std::string_view text) {
    U32(static_cast<uint32_t>(text.size()));
    Raw(text.data(), text.size());
  }
  size_t size() const { return out_->size(); }

 private:
  Bytes* out_;
};

class Reader {
 public:
  explicit Reader(ByteView in) : in_(in) {}
  uint8_t U8() { return Number<uint8_t>(); }
  uint16_t U16() { return Number<uint16_t>(); }
  uint32_t U32() { return Number<uint32_t>(); }
  uint64_t U64() { return Number<uint64_t>(); }
  bool Raw(void* out, size_t bytes) {
    if (!ok_ || in_.size() < bytes) {
      ok_ = false;
      if (bytes != 0) std::memset(out, 0, bytes);
      return false;
    }
    if (bytes != 0) std::memcpy(out, in_.data(), bytes);
    in_ = in_.subspan(bytes);
    return true;
  }
  // A view into the input, valid as long as the input is; empty once failed.
  ByteView View(size_t bytes) {
    if (!ok_ || in_.size() < bytes) {
      ok_ = false;
      return {};
    }
    ByteView view = in_.first(bytes);
    in_ = in_.subspan(bytes);
    return view;
  }
  // u32 length, then the bytes; longer than `bytes_max` fails.
  std::string_view Text(size_t bytes_max) {
    const uint32_t bytes = U32();
    if (bytes > bytes_max) ok_ = false;
    ByteView view = View(ok_ ? bytes : 0);
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }
  size_t left() const { return in_.size(); }
  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }

 private:
  template <typename T>
  T Number() {
    T value = 0;
    Raw(&value, sizeof value);
    return value;
  }
  ByteView in_;
  bool ok_ = true;
};

}  // namespace larder
