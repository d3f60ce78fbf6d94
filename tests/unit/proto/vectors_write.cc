// Writes the golden vectors of this build into a folder: when a format gets a new version, never to make a
// test pass. tests/unit/proto/vectors/README.md says when.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/unit/proto/vectors.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: proto_vectors FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder(argv[1]);
  std::filesystem::create_directories(folder);
  for (const auto& [name, contents] : larder::testing::VectorsOfThisBuild()) {
    std::ofstream file(folder / name, std::ios::binary);
    file << contents;
    if (!file.flush()) {
      std::fprintf(stderr, "proto_vectors: cannot write %s\n", (folder / name).c_str());
      return 1;
    }
  }
  return 0;
}
