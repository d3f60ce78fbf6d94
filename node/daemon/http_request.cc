#include "node/daemon/http_request.h"

#include <algorithm>

namespace larder::node {
namespace {

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool IsTokenCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenCharacter);
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// "GET /metrics?x=1 HTTP/1.1"
bool ParseLine(std::string_view line, HttpRequest* request) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last <= first) return false;
  request->method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(request->method) || target.empty() || !IsPrintable(target)) return false;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  request->keep_alive = version == "HTTP/1.1";
  if (target.starts_with("http://")) {  // absolute form, as through a proxy
    const size_t slash = target.find('/', 7);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (target.front() != '/') return false;
  request->path = target.substr(0, target.find('?'));
  return true;
}

bool ParseField(std::string_view line, HttpRequest* request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return false;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Trim(line.substr(colon + 1));
  if (EqualsIgnoringCase(name, "connection")) {
    if (EqualsIgnoringCase(value, "close")) request->keep_alive = false;
    if (EqualsIgnoringCase(value, "keep-alive")) request->keep_alive = true;
  } else if (EqualsIgnoringCase(name, "content-length")) {
    if (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos) return false;
    if (value.find_first_not_of('0') != std::string_view::npos) request->has_body = true;
  } else if (EqualsIgnoringCase(name, "transfer-encoding")) {
    request->has_body = true;
  }
  return true;
}

}  // namespace

HttpParse ParseHttpRequest(std::string_view text, HttpRequest* request) {
  *request = {};
  size_t at = 0;
  bool have_line = false;
  for (;;) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) return HttpParse::kIncomplete;
    std::string_view line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    at = end + 1;
    if (line.empty()) {
      if (!have_line) continue;  // an empty line may come before a request
      request->head_bytes = at;
      return HttpParse::kOk;
    }
    if (!(have_line ? ParseField(line, request) : ParseLine(line, request))) return HttpParse::kBad;
    have_line = true;
  }
}

}  // namespace larder::node
