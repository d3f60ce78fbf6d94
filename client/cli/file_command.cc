// larderctl put, get and remove: files through the store, for debugging.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/cli/blocks.h"
#include "client/cli/file_blocks.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kBatchChunks = 16;
constexpr size_t kHashesOfRemove = 4096;

struct FileArguments {
  std::shared_ptr<NamespaceFlags> name_space;
  std::string path, name, hash, out, bytes;
};

struct Closer {
  void operator()(std::FILE* file) const {
    if (file != stdin && file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, Closer>;

Result<File> OpenFile(const std::string& path, bool write) {
  if (path == "-") return File(write ? stdout : stdin);
  File file(std::fopen(path.c_str(), write ? "wb" : "rb"));
  if (file == nullptr) return Invalid("cannot open " + path + ": " + std::strerror(errno));
  return file;
}

Result<ChainHash> KeyOf(const FileArguments& arguments, const std::string& name) {
  if (arguments.hash.empty()) return FileKey(name);
  ChainHash key;
  const Status status = FromHex(arguments.hash, &key.bytes);
  if (!status.ok()) return Invalid("--hash: \"" + arguments.hash + "\" is no hash: 64 hex digits");
  return key;
}

Status OtherBytes() {
  return Invalid("other bytes are stored under this name; choose another name, or clear the namespace");
}

// Puts or gets whole batches; the first block that fails ends it.
Status PutBlocks(Client* client, const NamespaceHandle& handle, const Globals& globals,
                 std::span<const ChainHash> keys, std::span<const ConstExtentRef> extents, uint64_t* stored) {
  std::vector<PutItem> items(keys.size());
  for (size_t i = 0; i < keys.size(); i++) {
    items[i].hash = keys[i];
    items[i].extents = {extents[i]};
  }
  // A busy node says "again later"; whoever sits at this command wants it stored.
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(globals.timeout_us);
  const auto left_us = [&] {
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(end - std::chrono::steady_clock::now());
    return static_cast<uint64_t>(std::max<int64_t>(0, left.count()));
  };
  const auto busy = [](const PutResult& result) {
    return !result.there() && result.why.code() == Code::kBusy;
  };
  std::vector<PutResult> results = client->Put(handle, items, {globals.timeout_us});
  for (auto at = std::ranges::find_if(results, busy); at != results.end() && left_us() != 0;
       at = std::ranges::find_if(results, busy)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const PutItem& item = items[static_cast<size_t>(at - results.begin())];
    *at = client->Put(handle, std::span(&item, 1), {std::max<uint64_t>(1'000, left_us())}).front();
  }
  for (const PutResult& result : results) {
    if (result.state == PutState::kDiffers) {
      return OtherBytes();
    }
    if (!result.there()) {
      return Status(Code::kUnavailable, "a block was not stored: " + std::string(PutStateName(result.state)) +
                                            (result.why.ok() ? "" : " (" + result.why.ToString() + ")"));
    }
    *stored += result.state == PutState::kStored;
  }
  return Status::Ok();
}

Status GetBlocks(Client* client, const NamespaceHandle& handle, const Globals& globals,
                 std::span<const ChainHash> keys, std::span<const MutableExtent> extents) {
  std::vector<GetItem> items(keys.size());
  for (size_t i = 0; i < keys.size(); i++) {
    items[i].hash = keys[i];
    items[i].extents = {extents[i]};
  }
  for (const BlockResult& result : client->Get(handle, items, {globals.timeout_us})) {
    if (result.outcome != Outcome::kHit) {
      return Status(Code::kNotFound, "a " + std::string(OutcomeName(result.outcome)) + ": " +
                                         std::string(PresenceName(result.reason)));
    }
  }
  return Status::Ok();
}

Status PutFile(Client* client, const NamespaceHandle& handle, const Globals& globals, std::FILE* file,
               const ChainHash& key, FileIndex* index, uint64_t* stored) {
  FileDigest digest;
  Bytes buffer(kBatchChunks * kFileChunkBytes);
  for (;;) {
    const size_t got = std::fread(buffer.data(), 1, buffer.size(), file);
    if (std::ferror(file)) return Invalid(std::string("reading: ") + std::strerror(errno));
    std::vector<ChainHash> keys;
    std::vector<ConstExtentRef> extents;
    for (size_t at = 0; at < got; at += kFileChunkBytes) {
      const ByteView chunk(buffer.data() + at, std::min<size_t>(kFileChunkBytes, got - at));
      digest.Add(chunk);
      keys.push_back(ChunkKey(key, (index->bytes + at) / kFileChunkBytes));
      extents.push_back({chunk.data(), chunk.size()});
    }
    index->bytes += got;
    if (index->bytes > kFileBytesMax) return Invalid("the file is larger than 1 TiB");
    if (!keys.empty()) LARDER_RETURN_IF_ERROR(PutBlocks(client, handle, globals, keys, extents, stored));
    if (got < buffer.size()) break;
  }
  index->digest = digest.digest();
  const Bytes encoded = EncodeFileIndex(*index);
  const ConstExtentRef extent{encoded.data(), encoded.size()};
  const uint64_t before = *stored;
  LARDER_RETURN_IF_ERROR(PutBlocks(client, handle, globals, {&key, 1}, {&extent, 1}, stored));
  if (*stored != before) return Status::Ok();
  // An index was there before: of these bytes, or of others? `exists` alone does not say.
  Bytes there(kFileIndexBytes);
  const MutableExtent landing{there.data(), there.size()};
  LARDER_RETURN_IF_ERROR(GetBlocks(client, handle, globals, {&key, 1}, {&landing, 1}));
  return there == encoded ? Status::Ok() : OtherBytes();
}

Status GetFile(Client* client, const NamespaceHandle& handle, const Globals& globals, const ChainHash& key,
               std::FILE* file, FileIndex* index) {
  Bytes encoded(kFileIndexBytes);
  const MutableExtent extent{encoded.data(), encoded.size()};
  LARDER_RETURN_IF_ERROR(GetBlocks(client, handle, globals, {&key, 1}, {&extent, 1}));
  const Result<FileIndex> decoded = DecodeFileIndex(encoded);
  if (!decoded.ok()) return decoded.status();
  *index = decoded.value();
  FileDigest digest;
  Bytes buffer(std::min<uint64_t>(index->chunks(), kBatchChunks) * index->chunk_bytes);
  for (uint64_t first = 0; first < index->chunks(); first += kBatchChunks) {
    std::vector<ChainHash> keys;
    std::vector<MutableExtent> extents;
    for (uint64_t chunk = first; chunk < std::min(index->chunks(), first + kBatchChunks); chunk++) {
      keys.push_back(ChunkKey(key, chunk));
      extents.push_back({buffer.data() + (chunk - first) * index->chunk_bytes, index->BytesOfChunk(chunk)});
    }
    LARDER_RETURN_IF_ERROR(GetBlocks(client, handle, globals, keys, extents));
    for (const MutableExtent& each : extents) {
      digest.Add({static_cast<const std::byte*>(each.data), each.bytes});
      if (std::fwrite(each.data, 1, each.bytes, file) != each.bytes)
        return Invalid(std::string("writing: ") + std::strerror(errno));
    }
  }
  if (std::fflush(file) != 0) return Invalid(std::string("writing: ") + std::strerror(errno));
  if (digest.digest() != index->digest)
    return Status(Code::kCorrupt, "the blocks verify, but they are not this file's");
  return Status::Ok();
}

// One block as it is, of any namespace.
Status GetRaw(Client* client, const NamespaceHandle& handle, const Globals& globals, const ChainHash& key,
              uint64_t bytes, std::FILE* file) {
  Bytes buffer(bytes);
  const MutableExtent extent{buffer.data(), buffer.size()};
  LARDER_RETURN_IF_ERROR(GetBlocks(client, handle, globals, {&key, 1}, {&extent, 1}));
  const bool written =
      std::fwrite(buffer.data(), 1, buffer.size(), file) == buffer.size() && std::fflush(file) == 0;
  return written ? Status::Ok() : Invalid(std::string("writing: ") + std::strerror(errno));
}

// Standard error carries it when standard output carries the file.
int Say(const Globals& globals, std::FILE* to, const char* did, const ChainHash& key, uint64_t bytes,
        const ordered_json& more) {
  ordered_json out = {{"hash", ToHex(key.bytes)}, {"bytes", bytes}};
  out.update(more);
  if (globals.json())
    std::fprintf(to, "%s\n", out.dump().c_str());
  else
    std::fprintf(to, "%s: %s, %s bytes\n", ToHex(key.bytes).c_str(), did, Grouped(bytes).c_str());
  return kExitOk;
}

struct OpenCluster {
  std::unique_ptr<Client> client;
  NamespaceHandle space;
};

// An exit code; what failed has been said.
int Open(const Globals& globals, const FileArguments& arguments, OpenCluster* cluster) {
  Result<std::unique_ptr<Client>> client = Connect(globals);
  if (!client.ok()) return Fail(client.status());
  const Result<NamespaceHandle> space = OpenNamespace(*arguments.name_space, client.value().get());
  if (!space.ok()) return Fail(space.status(), kExitUsage);
  *cluster = {std::move(client).value(), space.value()};
  return kExitOk;
}

int Put(const Globals& globals, const FileArguments& arguments) {
  const size_t slash = arguments.path.rfind('/');
  const std::string name = !arguments.name.empty()      ? arguments.name
                           : slash == std::string::npos ? arguments.path
                                                        : arguments.path.substr(slash + 1);
  if (name == "-" && arguments.hash.empty())
    return Fail(Invalid("put of standard input wants --name or --hash"), kExitUsage);
  const Result<ChainHash> key = KeyOf(arguments, name);
  if (!key.ok()) return Fail(key.status(), kExitUsage);
  Result<File> file = OpenFile(arguments.path, false);
  if (!file.ok()) return Fail(file.status(), kExitUsage);
  OpenCluster cluster;
  if (const int code = Open(globals, arguments, &cluster); code != kExitOk) return code;
  FileIndex index;
  uint64_t stored = 0;
  const Status status =
      PutFile(cluster.client.get(), cluster.space, globals, file.value().get(), key.value(), &index, &stored);
  if (!status.ok()) return Fail(status);
  const bool news = stored != 0;
  return Say(globals, stdout, news ? "stored" : "was there already", key.value(), index.bytes,
             {{"blocks", index.chunks() + 1}, {"stored", stored}});
}

int Get(const Globals& globals, const FileArguments& arguments) {
  if (arguments.name.empty() == arguments.hash.empty())
    return Fail(Invalid("get wants a name or --hash"), kExitUsage);
  uint64_t raw_bytes = 0;
  if (!arguments.bytes.empty()) {
    const Result<uint64_t> parsed = ParseBytes(arguments.bytes);
    if (!parsed.ok()) return Fail(Invalid("--bytes: " + parsed.status().text()), kExitUsage);
    raw_bytes = parsed.value();
    if (raw_bytes == 0 || raw_bytes > kPieceBytesMax)
      return Fail(Invalid("--bytes is 1..512MiB"), kExitUsage);
    if (arguments.hash.empty())
      return Fail(Invalid("--bytes goes with --hash: one block as it is"), kExitUsage);
  }
  const Result<ChainHash> key = KeyOf(arguments, arguments.name);
  if (!key.ok()) return Fail(key.status(), kExitUsage);
  OpenCluster cluster;
  if (const int code = Open(globals, arguments, &cluster); code != kExitOk) return code;
  // What did not verify must not look like a file: the name is given at the end.
  const bool to_stdout = arguments.out.empty() || arguments.out == "-";
  const std::string draft = to_stdout ? "-" : arguments.out + ".part";
  Result<File> file = OpenFile(draft, true);
  if (!file.ok()) return Fail(file.status(), kExitUsage);
  FileIndex index;
  index.bytes = raw_bytes;
  Status status =
      raw_bytes != 0
          ? GetRaw(cluster.client.get(), cluster.space, globals, key.value(), raw_bytes, file.value().get())
          : GetFile(cluster.client.get(), cluster.space, globals, key.value(), file.value().get(), &index);
  file.value().reset();
  if (!to_stdout) {
    if (!status.ok())
      std::remove(draft.c_str());
    else if (std::rename(draft.c_str(), arguments.out.c_str()) != 0)
      status = Invalid("cannot write " + arguments.out + ": " + std::strerror(errno));
  }
  if (!status.ok()) return Fail(status);
  return Say(globals, to_stdout ? stderr : stdout, "verified", key.value(), index.bytes,
             {{"verified_bytes", index.bytes}});
}

// The index last: until then another remove finds the rest. It is asked of every node that may have a copy.
int Remove(const Globals& globals, const FileArguments& arguments) {
  if (arguments.name.empty() == arguments.hash.empty())
    return Fail(Invalid("remove wants a name or --hash"), kExitUsage);
  const Result<ChainHash> key = KeyOf(arguments, arguments.name);
  if (!key.ok()) return Fail(key.status(), kExitUsage);
  OpenCluster cluster;
  if (const int code = Open(globals, arguments, &cluster); code != kExitOk) return code;
  std::vector<ChainHash> keys;
  Bytes encoded(kFileIndexBytes);
  const MutableExtent extent{encoded.data(), encoded.size()};
  if (GetBlocks(cluster.client.get(), cluster.space, globals, {&key.value(), 1}, {&extent, 1}).ok()) {
    const Result<FileIndex> index = DecodeFileIndex(encoded);
    const uint64_t chunks = index.ok() ? index->chunks() : 0;
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) keys.push_back(ChunkKey(key.value(), chunk));
  }
  keys.push_back(key.value());
  const std::vector<uint16_t> groups = {0};
  uint64_t removed = 0;
  for (std::span<const ChainHash> left(keys); !left.empty();) {
    const auto some = left.first(std::min<size_t>(left.size(), kHashesOfRemove));
    left = left.subspan(some.size());
    const Result<uint32_t> done = cluster.client->Remove(cluster.space, some, groups, {globals.timeout_us});
    if (!done.ok()) return Fail(done.status());
    removed += done.value();
  }
  if (globals.json()) {
    std::printf("%s\n",
                ordered_json{{"hash", ToHex(key->bytes)}, {"removed_blocks", removed}}.dump().c_str());
  } else {
    std::printf("%s: removed, %s blocks\n", ToHex(key->bytes).c_str(), Grouped(removed).c_str());
  }
  return kExitOk;
}

}  // namespace

void AddPut(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("put", "store a file as blocks");
  auto arguments = std::make_shared<FileArguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("file", arguments->path, "file to store; - reads standard input")->required();
  command->add_option("--name", arguments->name, "store it by this name; default: the file's own");
  command->add_option("--hash", arguments->hash, "store it under this chain hash instead");
  command->callback(
      [run, arguments] { *run = [arguments](const Globals& globals) { return Put(globals, *arguments); }; });
}

void AddGet(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("get", "read a file that put stored, or one block, and verify it");
  auto arguments = std::make_shared<FileArguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("name", arguments->name, "the file's name");
  command->add_option("--hash", arguments->hash, "its chain hash instead");
  command->add_option("--bytes", arguments->bytes,
                      "with --hash: the payload of that one block, which has so many bytes");
  command->add_option("--out", arguments->out, "file to write; default: standard output");
  command->callback(
      [run, arguments] { *run = [arguments](const Globals& globals) { return Get(globals, *arguments); }; });
}

void AddRemove(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("remove", "forget a file that put stored, or one block");
  auto arguments = std::make_shared<FileArguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("name", arguments->name, "the file's name");
  command->add_option("--hash", arguments->hash, "its chain hash, or that of one block, instead");
  command->callback([run, arguments] {
    *run = [arguments](const Globals& globals) { return Remove(globals, *arguments); };
  });
}

void AddBlocks(CLI::App* app, Run* run) {
  AddMatch(app, run);
  AddExplain(app, run);
  AddLocate(app, run);
  AddPut(app, run);
  AddGet(app, run);
  AddRemove(app, run);
}

}  // namespace larder::cli
