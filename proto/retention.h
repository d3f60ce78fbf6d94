// What an engine knows of a chain's future when a request ends. It moves blocks in the order in which they
// leave and fades as they age; it never pins.
#pragma once

#include <cstdint>

namespace larder {

enum class Retention : uint8_t {
  kNone = 0,       // nothing is known
  kEnded = 1,      // the turn ended: the next one comes when a person has read and written
  kContinues = 2,  // a tool call follows: the chain is asked for again in seconds
  kNever = 3,      // never again: it gives way before all others
};
inline constexpr unsigned kRetentions = 4;

}  // namespace larder
