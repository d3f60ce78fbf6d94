#include "client/client.h"

namespace larder {

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kHit:
      return "hit";
    case Outcome::kMiss:
      return "miss";
    case Outcome::kCorrupt:
      return "corrupt";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kTimedOut:
      return "timed-out";
  }
  return "unknown";
}

}  // namespace larder
