#include "node/owner/cover.h"

#include <algorithm>

namespace larder::node {

namespace {
constexpr size_t kPatchesMax = 4096;

Rectangle Intersect(const Rectangle& a, const Rectangle& b) {
  return {std::max(a.layer_begin, b.layer_begin), std::min(a.layer_end, b.layer_end),
          std::max(a.head_begin, b.head_begin), std::min(a.head_end, b.head_end)};
}

// Appends what is left of `whole` without `taken` (which lies inside it): at most four rectangles.
void AppendRest(const Rectangle& whole, const Rectangle& taken, std::vector<Rectangle>* rest) {
  const auto add = [rest](uint16_t lb, uint16_t le, uint16_t hb, uint16_t he) {
    if (lb < le && hb < he) rest->push_back({lb, le, hb, he});
  };
  add(whole.layer_begin, taken.layer_begin, whole.head_begin, whole.head_end);
  add(taken.layer_begin, taken.layer_end, whole.head_begin, taken.head_begin);
  add(taken.layer_begin, taken.layer_end, taken.head_end, whole.head_end);
  add(taken.layer_end, whole.layer_end, whole.head_begin, whole.head_end);
}
}  // namespace

bool Cover(const Rectangle& ask, std::span<const Patch> pieces, uint64_t* work_left,
           std::vector<Patch>* sources) {
  sources->clear();
  if (*work_left < pieces.size()) {
    *work_left = 0;
    return false;
  }
  *work_left -= pieces.size();
  std::vector<Patch> useful;
  for (const Patch& piece : pieces) {
    const Rectangle common = Intersect(piece.rectangle, ask);
    if (common.valid()) useful.push_back({piece.entry, common});
  }
  std::stable_sort(useful.begin(), useful.end(),
                   [](const Patch& a, const Patch& b) { return a.rectangle.parts() > b.rectangle.parts(); });
  std::vector<Rectangle> missing{ask}, rest;
  for (const Patch& piece : useful) {
    if (missing.empty()) break;
    if (*work_left < missing.size()) {
      *work_left = 0;
      break;
    }
    *work_left -= missing.size();
    rest.clear();
    for (const Rectangle& hole : missing) {
      const Rectangle common = Intersect(piece.rectangle, hole);
      if (!common.valid()) {
        rest.push_back(hole);
        continue;
      }
      sources->push_back({piece.entry, common});
      AppendRest(hole, common, &rest);
    }
    missing.swap(rest);
    if (missing.size() > kPatchesMax || sources->size() > kPatchesMax) break;
  }
  if (missing.empty()) return true;
  sources->clear();
  return false;
}

}  // namespace larder::node
