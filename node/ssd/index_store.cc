#include "node/ssd/index_store.h"

#include <rocksdb/db.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

namespace larder::node::ssd {
namespace {

constexpr size_t kChunkRecords = 4096;
constexpr size_t kNameBytes = 9;
constexpr uint8_t kRecordVersion = 1;
constexpr uint8_t kUniformFlag = 1;

rocksdb::Slice SliceOf(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
ByteView ViewOf(const rocksdb::Slice& slice) {
  return {reinterpret_cast<const std::byte*>(slice.data()), slice.size()};
}

Bytes NameOf(uint32_t segment, uint32_t page) {
  Bytes name;
  Writer writer(&name);
  writer.U8('b');
  writer.U32(__builtin_bswap32(segment));
  writer.U32(__builtin_bswap32(page));
  return name;
}

Bytes SpaceName(const Namespace& name_space) {
  Bytes name;
  Writer writer(&name);
  writer.U8('n');
  writer.View(name_space.bytes);
  return name;
}

Status StatusOf(const rocksdb::Status& status) {
  if (status.ok()) return Status::Ok();
  const bool corrupt = status.IsCorruption() || status.IsInvalidArgument() || status.IsNotSupported() ||
                       status.IsNotFound() || status.IsPathNotFound();
  return {corrupt ? Code::kCorrupt : Code::kInternal, status.ToString()};
}

// The index is small beside what it describes: little memory, few files, no compression.
rocksdb::Options RocksOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 8 << 20;
  options.max_write_buffer_number = 3;
  options.max_background_jobs = 2;
  options.max_open_files = 256;
  options.max_total_wal_size = 64 << 20;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  // A torn end of the log is what a crash leaves: what is whole before it counts.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(4 << 20);
  table.block_size = 64 << 10;  // read from end to end, if at all
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace

Bytes EncodeRecord(const IndexRecord& record) {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U8(kRecordVersion);
  writer.U8(record.uniform ? kUniformFlag : 0);
  writer.U16(record.group);
  writer.U64(record.sequence);
  writer.View(record.name_space.bytes);
  writer.View(record.hash.bytes);
  writer.U16(record.rectangle.layer_begin);
  writer.U16(record.rectangle.layer_end);
  writer.U16(record.rectangle.head_begin);
  writer.U16(record.rectangle.head_end);
  writer.U32(record.clear_epoch);
  writer.U32(record.payload_bytes);
  writer.U32(record.header_bytes);
  writer.U32(record.created_s);
  writer.U32(record.depth);
  writer.U32(record.writer_tag);
  return bytes;
}

bool DecodeRecord(ByteView bytes, IndexRecord* record) {
  Reader reader(bytes);
  if (reader.U8() != kRecordVersion) return false;
  record->uniform = (reader.U8() & kUniformFlag) != 0;
  record->group = reader.U16();
  record->sequence = reader.U64();
  reader.Raw(record->name_space.bytes.data(), record->name_space.bytes.size());
  reader.Raw(record->hash.bytes.data(), record->hash.bytes.size());
  record->rectangle.layer_begin = reader.U16();
  record->rectangle.layer_end = reader.U16();
  record->rectangle.head_begin = reader.U16();
  record->rectangle.head_end = reader.U16();
  record->clear_epoch = reader.U32();
  record->payload_bytes = reader.U32();
  record->header_bytes = reader.U32();
  record->created_s = reader.U32();
  record->depth = reader.U32();
  if (reader.left() != 0) record->writer_tag = reader.U32();  // older ones end here
  return reader.ok() && record->rectangle.valid() && record->rectangle.parts() <= kPartsMax &&
         record->payload_bytes <= kPieceBytesMax && record->header_bytes <= 4095 * 64 &&
         record->header_bytes % 64 == 0 && record->page < 1u << 20 && record->sequence != 0;
}

Bytes EncodeSpace(const SpaceRecord& record) {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U32(record.clear_epoch);
  writer.Text(record.tenant);
  writer.Text(record.identity);
  return bytes;
}

bool DecodeSpace(ByteView bytes, SpaceRecord* record) {
  Reader reader(bytes);
  record->clear_epoch = reader.U32();
  record->tenant = reader.Text(kTenantBytesMax);
  record->identity = reader.Text(kIdentityBytesMax);
  return reader.ok();
}

struct IndexStore::Rocks {
  std::unique_ptr<rocksdb::DB> db;
};

IndexStore::IndexStore(std::unique_ptr<Rocks> rocks) : rocks_(std::move(rocks)) {}
IndexStore::~IndexStore() = default;

Result<std::unique_ptr<IndexStore>> IndexStore::Open(const std::string& directory) {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(RocksOptions(), directory, &db);
  if (!status.ok()) return StatusOf(status);
  auto rocks = std::make_unique<Rocks>();
  rocks->db.reset(db);
  return std::unique_ptr<IndexStore>(new IndexStore(std::move(rocks)));
}

Status IndexStore::Destroy(const std::string& directory) {
  return StatusOf(rocksdb::DestroyDB(directory, RocksOptions()));
}

Status IndexStore::Apply(const std::vector<const Changes*>& changes, bool sync) {
  rocksdb::WriteBatch batch;
  for (const Changes* change : changes) {
    for (const SpaceRecord& space : change->spaces) {
      batch.Put(SliceOf(SpaceName(space.name_space)), SliceOf(EncodeSpace(space)));
    }
    for (const RecordName& name : change->removals) batch.Delete(SliceOf(NameOf(name.segment, name.page)));
    for (const uint32_t segment : change->emptied) {
      batch.DeleteRange(SliceOf(NameOf(segment, 0)), SliceOf(NameOf(segment + 1, 0)));
    }
    for (const IndexRecord& record : change->puts) {
      batch.Put(SliceOf(NameOf(record.segment, record.page)), SliceOf(EncodeRecord(record)));
    }
  }
  if (batch.Count() == 0) return Status::Ok();
  written_bytes_ += batch.GetDataSize();
  rocksdb::WriteOptions options;
  options.sync = sync;
  return StatusOf(rocks_->db->Write(options, &batch));
}

Result<std::vector<SpaceRecord>> IndexStore::Spaces() const {
  std::vector<SpaceRecord> out;
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> it(rocks_->db->NewIterator(options));
  for (it->Seek("n"); it->Valid() && it->key().starts_with("n"); it->Next()) {
    SpaceRecord record;
    if (it->key().size() != 1 + record.name_space.bytes.size() ||
        !DecodeSpace(ViewOf(it->value()), &record)) {
      return Status(Code::kCorrupt, "a namespace's record makes no sense");
    }
    std::memcpy(record.name_space.bytes.data(), it->key().data() + 1, record.name_space.bytes.size());
    out.push_back(std::move(record));
  }
  if (!it->status().ok()) return StatusOf(it->status());
  return out;
}

Status IndexStore::Scan(const std::function<bool(std::vector<IndexRecord>&&)>& chunk) const {
  std::vector<IndexRecord> records;
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.readahead_size = 4 << 20;
  const std::unique_ptr<rocksdb::Iterator> it(rocks_->db->NewIterator(options));
  for (it->Seek("b"); it->Valid() && it->key().starts_with("b"); it->Next()) {
    IndexRecord record;
    if (it->key().size() != kNameBytes) return {Code::kCorrupt, "a record's name makes no sense"};
    uint32_t words[2];
    std::memcpy(words, it->key().data() + 1, sizeof words);
    record.segment = __builtin_bswap32(words[0]);
    record.page = __builtin_bswap32(words[1]);
    if (!DecodeRecord(ViewOf(it->value()), &record)) return {Code::kCorrupt, "a record makes no sense"};
    records.push_back(record);
    if (records.size() < kChunkRecords) continue;
    if (!chunk(std::move(records))) return Status::Ok();
    records = {};
  }
  if (!it->status().ok()) return StatusOf(it->status());
  if (!records.empty()) chunk(std::move(records));
  return Status::Ok();
}

}  // namespace larder::node::ssd
