// Runs a fuzzer's entry point without libFuzzer: over each seed, each truncation of it, and seeded random
// mutations. With --corpus FOLDER it writes the seeds as raw bytes instead, for libFuzzer to start from.
//
//   NAME_replay [--seed N] [--runs N] [--corpus FOLDER] FILE...
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

bool ReadSeed(const std::string& path, Input* input) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!path.ends_with(".hex")) {
    input->assign(text.begin(), text.end());
    return true;
  }
  std::string digits;
  for (char c : text) {
    if (std::isxdigit(static_cast<unsigned char>(c))) digits.push_back(c);
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    input->push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return true;
}

// Exactly as large a heap block as the input has bytes, so that ASan sees the first byte past it.
void Run(const Input& input) {
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void Mutate(const std::vector<Input>& seeds, std::mt19937_64* random, Input* input) {
  const auto below = [random](size_t bound) {
    return bound == 0 ? 0 : static_cast<size_t>((*random)() % bound);
  };
  const size_t at = below(input->size());
  const auto place = input->begin() + static_cast<ptrdiff_t>(at);
  switch (below(7)) {
    case 0:
      if (!input->empty()) (*input)[at] ^= static_cast<uint8_t>(1u << below(8));
      break;
    case 1:
      if (!input->empty()) (*input)[at] = static_cast<uint8_t>((*random)());
      break;
    case 2: {  // a number that counts and lengths trip over
      constexpr uint32_t kNumbers[] = {0,    1,    255,   256,   1024,       1025,
                                       4096, 4097, 65535, 65536, 0x7fffffff, 0xffffffff};
      const uint32_t number = kNumbers[below(std::size(kNumbers))];
      if (input->size() >= 4) std::memcpy(input->data() + below(input->size() - 3), &number, 4);
      break;
    }
    case 3:
      input->resize(at);
      break;
    case 4:
      input->insert(place, 1 + below(16), static_cast<uint8_t>((*random)()));
      break;
    case 5:
      input->erase(place,
                   place + static_cast<ptrdiff_t>(below(1 + std::min<size_t>(16, input->size() - at))));
      break;
    default: {  // the head of this one, the tail of another
      const Input& other = seeds[below(seeds.size())];
      const auto tail = static_cast<ptrdiff_t>(below(other.size()));
      input->resize(at);
      input->insert(input->end(), other.begin() + tail, other.end());
      break;
    }
  }
}

int WriteCorpus(const std::vector<Input>& seeds, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream file(folder / ("seed-" + std::to_string(i)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seeds[i].data()), static_cast<std::streamsize>(seeds[i].size()));
    if (!file.flush()) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seed = 1, runs = 0;
  std::string corpus;
  std::vector<Input> seeds;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool option = argument == "--seed" || argument == "--runs" || argument == "--corpus";
    if (option && i + 1 == argc) {
      std::fprintf(stderr, "replay: %s needs a value\n", argument.c_str());
      return 2;
    }
    if (argument == "--seed") {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--runs") {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--corpus") {
      corpus = argv[++i];
    } else if (!ReadSeed(argument, &seeds.emplace_back())) {
      std::fprintf(stderr, "replay: cannot read %s\n", argument.c_str());
      return 2;
    }
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "replay: no seed files\n");
    return 2;
  }
  if (!corpus.empty()) return WriteCorpus(seeds, corpus);
  for (const Input& input : seeds) {
    for (size_t bytes = 0; bytes <= input.size(); ++bytes) {
      Run(Input(input.begin(), input.begin() + static_cast<ptrdiff_t>(bytes)));
    }
  }
  std::mt19937_64 random(seed);
  for (uint64_t run = 0; run < runs; ++run) {
    Input input = seeds[random() % seeds.size()];
    for (uint64_t change = 0, changes = 1 + random() % 5; change < changes; ++change)
      Mutate(seeds, &random, &input);
    Run(input);
  }
  std::printf("replay: %zu seeds, %llu mutations, seed %llu\n", seeds.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
