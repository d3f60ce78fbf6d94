// The head of an HTTP request: any bytes, parsed at every length that a slow peer could have sent so far.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "node/daemon/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using larder::node::HttpParse;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  larder::node::HttpRequest whole;
  const HttpParse result = ParseHttpRequest(text, &whole);
  if (result == HttpParse::kOk && (whole.head_bytes > size || whole.path.empty() || whole.path[0] != '/'))
    abort();
  for (size_t length = 0; length < size && length < 256; length++) {
    larder::node::HttpRequest part;
    const HttpParse early = ParseHttpRequest(text.substr(0, length), &part);
    // What was decided on a part of the bytes holds for all of them.
    if (early == HttpParse::kOk && (result != HttpParse::kOk || part.head_bytes != whole.head_bytes)) abort();
    if (early == HttpParse::kBad && result != HttpParse::kBad) abort();
  }
  return 0;
}
