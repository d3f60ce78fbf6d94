#include "node/ssd/head_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "node/ssd/directory.h"
#include "node/ssd/record.h"

namespace larder::node::ssd {

std::optional<BlockHeader> ReadHead(const std::string& directory, const IndexRecord& record) {
  const int file = open(SegmentPath(directory, record.segment).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  Bytes head(kPreambleBytes + size_t{record.header_bytes});
  const auto at = static_cast<off_t>(uint64_t{record.page} * kPageBytes);
  size_t there = 0;
  while (there < head.size()) {
    const ssize_t some =
        pread(file, head.data() + there, head.size() - there, at + static_cast<off_t>(there));
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;
    there += static_cast<size_t>(some);
  }
  close(file);
  BlockHeader header;
  if (there < head.size() || !HeadIs(head, record, &header)) return std::nullopt;
  return header;
}

}  // namespace larder::node::ssd
