#include "client/cli/hot_list.h"

#include <algorithm>

#include "client/cli/text_table.h"

namespace larder::cli {

namespace {

constexpr int kHotLinesMax = 4;

std::string HexOfHash(const control::v1::HotBlock& block) {
  return ToHex({reinterpret_cast<const std::byte*>(block.hash().data()), block.hash().size()});
}

}  // namespace

nlohmann::ordered_json HotJson(const NodeView& view) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& block : view.stats.hot()) {
    list.push_back({{"namespace", block.hex()},
                    {"hash", HexOfHash(block)},
                    {"group", block.group()},
                    {"reads", block.reads()},
                    {"copies", block.copies()}});
  }
  return list;
}

std::string HotText(const NodeView& view) {
  std::string text;
  const int shown = std::min(view.stats.hot_size(), kHotLinesMax);
  for (int i = 0; i < shown; ++i) {
    const auto& block = view.stats.hot(i);
    text += view.record.id + ", hot: " + HexOfHash(block) + ", " + Grouped(block.reads()) +
            " reads of late, " + std::to_string(block.copies()) + " copies\n";
  }
  if (shown < view.stats.hot_size()) {
    text += view.record.id + ", hot: " + std::to_string(view.stats.hot_size() - shown) + " more blocks\n";
  }
  return text;
}

}  // namespace larder::cli
