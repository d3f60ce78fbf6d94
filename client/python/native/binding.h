// What the files of the extension share. It stands on larder.h alone: what Python can do, C can do.
//
// The GIL is held wherever a Python object is touched and released around every call of larder.h that may
// wait or work.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "client/c/larder.h"

namespace larder::python {

namespace nb = nanobind;

// Raises the exception of larder_kv._errors that fits, with the GIL held.
[[noreturn]] void Raise(larder_code code, const char* text);
[[noreturn]] void RaiseInvalid(const std::string& text);

// A buffer of a Python object, released with the GIL held.
class View {
 public:
  View(nb::handle object, bool writable);  // contiguous; raises
  ~View() { PyBuffer_Release(&buffer_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  void* data() const { return buffer_.buf; }
  size_t bytes() const { return static_cast<size_t>(buffer_.len); }
  const Py_buffer& raw() const { return buffer_; }

 private:
  Py_buffer buffer_{};
};

// Hashes: one buffer of 32 bytes each, or a sequence of objects of 32 bytes.
class Hashes {
 public:
  explicit Hashes(nb::handle given);
  const uint8_t* data() const { return data_; }
  size_t count() const { return count_; }

 private:
  std::unique_ptr<View> view_;
  std::vector<uint8_t> copied_;
  const uint8_t* data_ = nullptr;
  size_t count_ = 0;
};

// Where blocks lie: for each one or more stretches of memory. Keeps what it points into alive and, for
// objects with the buffer protocol, unresizable.
class Extents {
 public:
  Extents() = default;
  Extents(const Extents&) = delete;
  Extents& operator=(const Extents&) = delete;
  // One object a block, or a sequence of objects a block: buffers, tensors (data_ptr), arrays.
  static std::shared_ptr<Extents> Of(nb::handle blocks, bool writable);
  // Addresses [blocks] or [blocks, extents]; one size for all, one for each extent of a block, or one for
  // each address. Nothing is kept alive.
  static std::shared_ptr<Extents> At(nb::handle addresses, nb::handle sizes);
  // Lists of addresses and of sizes, as many for each block as it has extents.
  static std::shared_ptr<Extents> Ragged(nb::handle addresses, nb::handle sizes);
  // Extents as they are, else Of.
  static std::shared_ptr<Extents> From(nb::handle given, bool writable);

  bool writable() const { return writable_; }
  size_t blocks() const { return counts_.size(); }
  size_t extent_count() const { return extents_.size(); }
  uint64_t bytes() const;
  const larder_extent* extents() const { return extents_.data(); }
  const uint32_t* counts() const { return counts_.data(); }

 private:
  void Add(nb::handle object);
  void AddAddress(uint64_t address, uint64_t bytes);

  bool writable_ = true;
  std::vector<larder_extent> extents_;
  std::vector<uint32_t> counts_;
  std::vector<std::unique_ptr<View>> views_;
  std::vector<nb::object> kept_;
};

// Groups and rectangles: none, one for all, or a sequence with one for each block.
struct Shapes {
  Shapes(nb::handle groups_given, nb::handle rectangles_given);
  std::vector<uint16_t> groups;
  std::vector<larder_rectangle> rectangles;
};
std::vector<larder_group> GroupsOf(nb::handle given);             // [(group, window blocks)]
std::vector<uint16_t> GroupNumbersOf(nb::handle given);           // an int, or a sequence of ints
bool RectangleOf(nb::handle given, larder_rectangle* rectangle);  // false: None

// Results own their arrays; Python sees bytes and lists of them.
struct MatchResult {
  size_t count = 0, groups = 0;
  uint32_t usable = 0;
  uint64_t pin = 0;
  std::vector<uint8_t> presence, bitmaps;
  std::vector<uint32_t> estimate_us;
  MatchResult(size_t blocks, size_t group_count);
  larder_match_result Raw();
};
struct GetResult {
  uint32_t hits = 0, leading = 0;
  std::vector<uint8_t> outcomes, reasons, writers;
  std::vector<uint64_t> bytes, created_ms;
  explicit GetResult(size_t blocks);
  larder_get_result Raw();
};
struct PutResult {
  uint32_t there = 0;
  std::vector<uint8_t> states;
  std::vector<uint32_t> copies;
  std::string why;
  explicit PutResult(size_t blocks);
  larder_put_result Raw();
};

void BindMemory(nb::module_& module);
void BindResults(nb::module_& module);
void BindClient(nb::module_& module);
void BindNamespace(nb::module_& module);
void BindQueue(nb::module_& module);

}  // namespace larder::python
