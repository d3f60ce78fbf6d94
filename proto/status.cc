#include "proto/status.h"

namespace larder {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not-found";
    case Code::kBusy:
      return "busy";
    case Code::kFull:
      return "full";
    case Code::kTimedOut:
      return "timed-out";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDenied:
      return "denied";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string Status::ToString() const {
  std::string text(CodeName(code_));
  if (!text_.empty()) text.append(": ").append(text_);
  return text;
}

}  // namespace larder
