#include "tests/bench/sim/advise.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace larder::sim {
namespace {

constexpr double kRamPercent[] = {1, 2, 5, 10, 20, 40, 80};
constexpr double kSsdPercent[] = {0, 5, 10, 20, 40, 80};

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

uint64_t BlocksOf(const Advice& advice, double percent) {
  return static_cast<uint64_t>(static_cast<double>(advice.distinct) * percent / 100 + 0.5);
}

PlayResult PlayAt(const SimTrace& trace, uint64_t ram_blocks, uint64_t ssd_blocks) {
  ClusterOptions options;
  options.cache.policy = node::kPolicyDefault;
  options.cache.ram_blocks = ram_blocks;
  options.cache.ssd_blocks = ssd_blocks;
  return Play(trace, options);
}

// The smallest size whose hit rate is within a point of the row's best.
size_t Knee(const std::vector<PlayResult>& row) {
  size_t knee = 0;
  while (knee + 1 < row.size() && row[knee].hit_percent() < row.back().hit_percent() - 1) ++knee;
  return knee;
}

}  // namespace

Advice Advise(const SimTrace& trace) {
  Advice advice;
  advice.trace = trace.name;
  advice.distinct = trace.distinct;
  advice.references = trace.blocks.size();
  advice.ram_percent.assign(std::begin(kRamPercent), std::end(kRamPercent));
  advice.ssd_percent.assign(std::begin(kSsdPercent), std::end(kSsdPercent));
  advice.ideal_percent = PlayAt(trace, trace.distinct, 0).hit_percent();
  for (const double ssd : advice.ssd_percent) {
    auto& row = advice.cells.emplace_back();
    for (const double ram : advice.ram_percent) {
      row.push_back(PlayAt(trace, std::max<uint64_t>(BlocksOf(advice, ram), 1), BlocksOf(advice, ssd)));
    }
  }
  return advice;
}

std::string AdviceTable(const Advice& advice) {
  std::string text = Format("%s: %llu blocks, %llu references, at most %.1f %% can hit\n\n",
                            advice.trace.c_str(), static_cast<unsigned long long>(advice.distinct),
                            static_cast<unsigned long long>(advice.references), advice.ideal_percent);
  text +=
      "Hit rate in percent. Sizes in percent of the trace's blocks and in blocks: times the bytes of a\n"
      "block (larderctl sizing) they are what to buy, for as long a stretch of traffic as the trace is.\n\n";
  text += Format("%16s", "RAM %");
  for (const double ram : advice.ram_percent) text += Format(" %8.0f", ram);
  text += Format("\n%16s", "blocks");
  for (const double ram : advice.ram_percent) {
    text += Format(" %8llu", static_cast<unsigned long long>(BlocksOf(advice, ram)));
  }
  text += "\n";
  for (size_t r = 0; r < advice.cells.size(); ++r) {
    const double ssd = advice.ssd_percent[r];
    text += ssd == 0
                ? Format("%16s", "no SSD")
                : Format("SSD %2.0f %% %8llu", ssd, static_cast<unsigned long long>(BlocksOf(advice, ssd)));
    for (const PlayResult& cell : advice.cells[r]) text += Format(" %8.1f", cell.hit_percent());
    text += "\n";
  }
  const size_t knee = Knee(advice.cells[0]);
  text += Format("\nRAM alone is within a point of its best from %.0f %% on (%llu blocks: %.1f %%).\n",
                 advice.ram_percent[knee],
                 static_cast<unsigned long long>(BlocksOf(advice, advice.ram_percent[knee])),
                 advice.cells[0][knee].hit_percent());
  return text;
}

std::string AdviceSvg(const Advice& advice) {
  constexpr double kLeft = 60, kTop = 40, kWidth = 560, kHeight = 320;
  const char* const colors[] = {"#1b1b1b", "#1f77b4", "#2ca02c", "#d98c00", "#c23b22", "#7b4fa3"};
  const double x_max = std::log(advice.ram_percent.back() / advice.ram_percent.front());
  const double y_max = std::max(10.0, std::ceil(advice.ideal_percent / 10) * 10);
  const auto x = [&](double ram) {
    return kLeft + kWidth * std::log(ram / advice.ram_percent.front()) / x_max;
  };
  const auto y = [&](double hit) { return kTop + kHeight * (1 - hit / y_max); };
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"430\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"760\" height=\"430\" "
      "fill=\"white\"/>\n";
  std::string name;
  for (const char c : advice.trace) {
    name += c == '<' || c == '&' ? '_' : c;  // a file's name may hold what XML does not allow
  }
  svg += Format("<text x=\"%.0f\" y=\"24\" font-size=\"14\">%.200s: block hits against RAM and SSD</text>\n",
                kLeft, name.c_str());
  for (double hit = 0; hit <= y_max; hit += 10) {
    svg += Format(
        "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
        "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.0f %%</text>\n",
        kLeft, kLeft + kWidth, y(hit), y(hit), kLeft - 8, y(hit) + 4, hit);
  }
  for (const double ram : advice.ram_percent) {
    svg += Format("<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f</text>\n", x(ram),
                  kTop + kHeight + 18, ram);
  }
  svg += Format(
      "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">RAM, percent of the distinct blocks</text>\n",
      kLeft + kWidth / 2, kTop + kHeight + 40);
  svg += Format(
      "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888\" "
      "stroke-dasharray=\"5 4\"/><text x=\"%.0f\" y=\"%.1f\">ideal</text>\n",
      kLeft, kLeft + kWidth, y(advice.ideal_percent), y(advice.ideal_percent), kLeft + kWidth + 8,
      y(advice.ideal_percent) + 4);
  for (size_t r = 0; r < advice.cells.size(); ++r) {
    const char* color = colors[r % std::size(colors)];
    svg += Format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
    for (size_t c = 0; c < advice.ram_percent.size(); ++c) {
      svg += Format("%.1f,%.1f ", x(advice.ram_percent[c]), y(advice.cells[r][c].hit_percent()));
    }
    const double legend_y = kTop + kHeight - 16 * static_cast<double>(advice.cells.size() - r);
    svg += Format("\"/>\n<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">", kLeft + kWidth + 8, legend_y, color);
    svg += advice.ssd_percent[r] == 0 ? "no SSD</text>\n"
                                      : Format("SSD %.0f %%</text>\n", advice.ssd_percent[r]);
  }
  return svg + "</svg>\n";
}

}  // namespace larder::sim
