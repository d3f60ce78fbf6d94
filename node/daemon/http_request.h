// The head of an HTTP/1.x request. A pure function, so that it can be fuzzed.
#pragma once

#include <cstddef>
#include <string_view>

namespace larder::node {

struct HttpRequest {
  std::string_view method;  // views into the text that was parsed
  std::string_view path;    // without query
  bool keep_alive = true;
  bool has_body = false;  // the server takes none
  size_t head_bytes = 0;  // request line to the empty line
};

enum class HttpParse : unsigned char { kIncomplete, kBad, kOk };

// Looks for one head at the front of `text`. Lines may end in CRLF or LF.
HttpParse ParseHttpRequest(std::string_view text, HttpRequest* request);

}  // namespace larder::node
