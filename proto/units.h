// How people write sizes and durations: in flags, environment variables, config files and output, alike in
// the node, the client and the tools. Pure and exact: no floating point on the way in.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace larder {

namespace units_detail {

__extension__ typedef unsigned __int128 Wide;

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// `number[.fraction]unit` times the unit's factor. Fractions are exact or refused.
inline Result<uint64_t> Scale(std::string_view text, const Unit* units, size_t count, std::string_view what,
                              std::string_view examples) {
  auto bad = [&](std::string_view why) {
    return Invalid("\"" + std::string(text) + "\" is no " + std::string(what) + " (" + std::string(why) +
                   "); write it like " + std::string(examples));
  };
  size_t at = 0;
  Wide number = 0;
  Wide divisor = 1;
  auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  if (!digit()) return bad("it must begin with a digit");
  for (; digit(); at++) {
    number = number * 10 + static_cast<unsigned>(text[at] - '0');
    if (number > std::numeric_limits<uint64_t>::max()) return bad("too large");
  }
  if (at < text.size() && text[at] == '.') {
    at++;
    if (!digit()) return bad("a digit must follow the point");
    for (; digit(); at++) {
      if (divisor >= 1'000'000) return bad("too many digits after the point");
      number = number * 10 + static_cast<unsigned>(text[at] - '0');
      if (number > std::numeric_limits<uint64_t>::max()) return bad("too many digits");
      divisor *= 10;
    }
  }
  while (at + 1 < text.size() && text[at] == ' ') at++;
  const std::string_view unit = text.substr(at);
  for (size_t i = 0; i < count; i++) {
    if (units[i].name != unit) continue;
    const Wide product = number * units[i].factor;  // < 2^64 * 2^50: fits
    if (product % divisor != 0) return bad("not a whole number of its smallest unit");
    const Wide value = product / divisor;
    if (value > std::numeric_limits<uint64_t>::max()) return bad("too large");
    return static_cast<uint64_t>(value);
  }
  return unit.empty() ? bad("the unit is missing") : bad("unknown unit \"" + std::string(unit) + "\"");
}

}  // namespace units_detail

// "64MiB", "64Mi", "1.5 GiB", "2GB", "2G", "4096". KiB and Ki are 1,024, KB and K are 1,000; no unit is
// bytes.
inline Result<uint64_t> ParseBytes(std::string_view text) {
  static constexpr uint64_t k = 1000, ki = 1024;
  static constexpr units_detail::Unit kUnits[] = {
      {"", 1},
      {"B", 1},
      {"k", k},
      {"K", k},
      {"kB", k},
      {"KB", k},
      {"Ki", ki},
      {"KiB", ki},
      {"M", k * k},
      {"MB", k * k},
      {"Mi", ki * ki},
      {"MiB", ki * ki},
      {"G", k * k * k},
      {"GB", k * k * k},
      {"Gi", ki * ki * ki},
      {"GiB", ki * ki * ki},
      {"T", k * k * k * k},
      {"TB", k * k * k * k},
      {"Ti", ki * ki * ki * ki},
      {"TiB", ki * ki * ki * ki},
      {"P", k * k * k * k * k},
      {"PB", k * k * k * k * k},
      {"Pi", ki * ki * ki * ki * ki},
      {"PiB", ki * ki * ki * ki * ki},
  };
  return units_detail::Scale(text, kUnits, std::size(kUnits), "size", "64MiB, 64Mi, 2GB or 1.5GiB");
}

// Microseconds: "5s", "250ms", "100us", "2m", "1h". A bare number says too little and is refused, but for 0.
inline Result<uint64_t> ParseDurationUs(std::string_view text) {
  if (text == "0") return uint64_t{0};
  static constexpr units_detail::Unit kUnits[] = {
      {"us", 1}, {"ms", 1000}, {"s", 1'000'000}, {"m", 60'000'000}, {"min", 60'000'000}, {"h", 3'600'000'000},
  };
  return units_detail::Scale(text, kUnits, std::size(kUnits), "duration", "5s, 250ms or 100us");
}

// The shortest exact text that ParseBytes reads back: 1073741824 -> "1GiB", 1000 -> "1000".
inline std::string ExactBytes(uint64_t bytes) {
  static constexpr std::string_view kNames[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kNames)) {
    bytes /= 1024;
    unit++;
  }
  return std::to_string(bytes) + std::string(kNames[unit]);
}

// The shortest exact text that ParseDurationUs reads back: 5000000 -> "5s".
inline std::string ExactDuration(uint64_t us) {
  if (us == 0) return "0";
  if (us % 1'000'000 == 0) return std::to_string(us / 1'000'000) + "s";
  if (us % 1000 == 0) return std::to_string(us / 1000) + "ms";
  return std::to_string(us) + "us";
}

// For people, rounded: "1.56 GiB", "800 KiB", "512 B".
inline std::string PrettyBytes(double bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kNames)) {
    bytes /= 1024;
    unit++;
  }
  char text[48];
  const bool whole = bytes == static_cast<double>(static_cast<uint64_t>(bytes));
  std::snprintf(text, sizeof text, whole || unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kNames[unit]);
  return text;
}

}  // namespace larder
