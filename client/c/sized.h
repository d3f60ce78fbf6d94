// Structs led by their size: how callers built against older and newer headers are understood.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "proto/status.h"

namespace larder::c {

inline constexpr size_t kStructBytesMax = 64 * 1024;

// What this library knows of the caller's struct, into `out`; the rest of `out` is zero.
template <typename T>
Status ReadSized(const T* given, const char* name, T* out) {
  *out = T{};
  if (given == nullptr) return Invalid(std::string(name) + " is NULL");
  uint32_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  if (bytes < sizeof bytes || bytes > kStructBytesMax) {
    return Invalid(std::string(name) + ".size is " + std::to_string(bytes) +
                   ": set it to sizeof of the struct");
  }
  const auto* from = reinterpret_cast<const unsigned char*>(given);
  if (bytes > sizeof(T) &&
      std::any_of(from + sizeof(T), from + bytes, [](unsigned char c) { return c != 0; })) {
    return Status(Code::kUnsupported, std::string(name) +
                                          " asks for something that this library, " LARDER_VERSION
                                          ", does not know: use a newer one");
  }
  std::memcpy(static_cast<void*>(out), given, std::min<size_t>(bytes, sizeof(T)));
  return Status::Ok();
}

// As much of `value` as the caller's struct has room for. Its size stays as it was.
template <typename T>
void WriteSized(T value, T* given) {
  std::memcpy(&value.size, given, sizeof value.size);
  std::memcpy(static_cast<void*>(given), &value, std::min<size_t>(value.size, sizeof(T)));
}

}  // namespace larder::c
