// What encoders and decoders of messages share; only for the message_*.cc files.
#pragma once

#include <type_traits>

#include "proto/message.h"

namespace larder::wire {

// Arrays of these travel as they lie in memory, one memcpy each.
template <typename T>
concept Packed = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>;

static_assert(Packed<ChainHash> && sizeof(ChainHash) == 32);
static_assert(Packed<PartRecord> && sizeof(PartRecord) == 8);
static_assert(Packed<PartRun> && sizeof(PartRun) == 8);
static_assert(Packed<MatchReply::Estimate> && sizeof(MatchReply::Estimate) == 8);
static_assert(Packed<Rectangle> && sizeof(Rectangle) == 8);
static_assert(Packed<PutState> && sizeof(PutState) == 1);

// Reads one record. The first problem sticks, with a text for the peer; reads after it give zeros.
class Decoder {
 public:
  Decoder(std::string_view message, ByteView record) : message_(message), reader_(record) {}

  uint8_t U8() { return reader_.U8(); }
  uint16_t U16() { return reader_.U16(); }
  uint32_t U32() { return reader_.U32(); }
  uint64_t U64() { return reader_.U64(); }
  bool Flag();
  template <typename Enum>
  Enum Choice(Enum last, const char* what) {
    const uint8_t value = U8();
    Check(value <= static_cast<uint8_t>(last), what);
    return ok() ? static_cast<Enum>(value) : Enum{};
  }
  std::string Text(size_t bytes_max, const char* what);
  Bytes Blob(size_t bytes_max, const char* what);
  Digest Sha();
  // A count that is followed by so many items of at least item_bytes: what can't be there is refused
  // before memory is taken for it.
  uint32_t Count(size_t count_max, size_t item_bytes, const char* what);
  template <Packed T>
  void Items(size_t count, std::vector<T>* out) {
    const ByteView view = reader_.View(count * sizeof(T));
    out->resize(view.size() / sizeof(T));
    if (!view.empty()) std::memcpy(out->data(), view.data(), view.size());
  }
  template <Packed T>
  void Array(size_t count_max, std::vector<T>* out, const char* what) {
    Items(Count(count_max, sizeof(T), what), out);
  }
  Rectangle Rect();
  BlockRef Block();
  void Groups(size_t count_min, std::vector<uint16_t>* out);
  // The tail of Match, Wait and Touch: where the hashes are, how many, and the hashes when inline.
  template <typename Body>
  void Hashes(Body* body) {
    body->hashes_in_payload = Flag();
    body->hash_count = U32();
    Check(body->hash_count <= kHashesMax, "more than 65536 hashes");
    if (body->hashes_in_payload) return;
    Check(body->hash_count <= kHashesInlineMax, "more than 256 inline hashes");
    if (ok()) Items(body->hash_count, &body->hashes);
  }

  void Check(bool good, const char* problem);
  bool More() const { return ok() && reader_.left() > 0; }
  bool ok() const { return problem_ == nullptr && reader_.ok(); }
  Status Finish() const;

 private:
  std::string_view message_;
  Reader reader_;
  const char* problem_ = nullptr;
};

}  // namespace larder::wire
