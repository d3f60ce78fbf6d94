#include "node/daemon/metrics.h"

#include <prometheus/text_serializer.h>

#include "node/version.h"

namespace larder::node {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

// Takes the values of one metric.
class Sink {
 public:
  explicit Sink(prometheus::MetricFamily* family) : family_(family) {}
  void Add(double value, std::vector<ClientMetric::Label> labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (family_->type == MetricType::Counter)
      metric.counter.value = value;
    else
      metric.gauge.value = value;
    family_->metric.push_back(std::move(metric));
  }
  void Add(uint64_t value, std::vector<ClientMetric::Label> labels = {}) {
    Add(static_cast<double>(value), std::move(labels));
  }

 private:
  prometheus::MetricFamily* family_;
};

struct Metric {
  MetricInfo info;
  void (*emit)(const MetricsInput& in, Sink& out);
};

using In = const MetricsInput&;
constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;

void EmitMisses(In in, Sink& out) {
  for (int i = 64; i < 256; i++) {
    const auto reason = static_cast<Presence>(i);
    const bool known =
        reason >= Presence::kWriting && reason <= Presence::kPlaceLost && reason != Presence::kUnreachable;
    if (known) out.Add(in.owner.miss_by_reason[i], {{"reason", std::string(PresenceName(reason))}});
  }
}

void EmitKvEventBlocks(In in, Sink& out) {
  out.Add(in.info.kv_events.stored, {{"event", "stored"}});
  out.Add(in.info.kv_events.removed, {{"event", "removed"}});
}

void EmitPuts(In in, Sink& out) {
  const OwnerStats& s = in.owner;
  const std::pair<PutState, uint64_t> states[] = {{PutState::kStored, s.puts},
                                                  {PutState::kExists, s.put_exists},
                                                  {PutState::kDiffers, s.put_differs},
                                                  {PutState::kFull, s.put_full},
                                                  {PutState::kBusy, s.put_busy},
                                                  {PutState::kExpired, s.put_expired},
                                                  {PutState::kCorrupt, s.put_corrupt},
                                                  {PutState::kInvalid, s.put_invalid},
                                                  {PutState::kOverQuota, s.put_over_quota}};
  for (const auto& [state, count] : states) out.Add(count, {{"outcome", std::string(PutStateName(state))}});
}

void EmitMemory(In in, Sink& out) {
  const OwnerStats& s = in.owner;
  out.Add(s.memory_bytes, {{"kind", "capacity"}});
  out.Add(s.slab_bytes, {{"kind", "slabs"}});
  out.Add(s.slot_bytes, {{"kind", "slots"}});
  out.Add(s.payload_bytes, {{"kind", "payload"}});
  out.Add(s.metadata_bytes, {{"kind", "metadata"}});
  out.Add(s.soft_pinned_bytes, {{"kind", "pinned"}});
  out.Add(in.info.prefaulted_bytes, {{"kind", "prefaulted"}});
}

void EmitHandOver(In in, Sink& out) {
  const HandOverProgress& progress = in.info.hand_over;
  out.Add(progress.blocks, {{"kind", "found"}});
  out.Add(progress.handed_blocks, {{"kind", "handed"}});
  out.Add(progress.gone_blocks, {{"kind", "gone"}});
  out.Add(progress.stays_blocks, {{"kind", "stays"}});
  out.Add(progress.left_blocks(), {{"kind", "left"}});
}

// A row for each tenant that has limits, and one for all others: as many as are configured.
void EmitTenantBytes(In in, Sink& out) {
  for (const TenantStats& each : in.owner.tenants) {
    out.Add(each.used_bytes, {{"tenant", each.name}, {"kind", "used"}});
    out.Add(each.pinned_bytes, {{"tenant", each.name}, {"kind", "pinned"}});
    if (each.quota_bytes == TenantLimits::kNoQuota) continue;
    out.Add(each.quota_bytes, {{"tenant", each.name}, {"kind", "quota"}});
  }
}

void EmitTenantSsd(In in, Sink& out) {
  for (const TenantStats& each : in.owner.tenants) {
    out.Add(each.ssd_bytes, {{"tenant", each.name}, {"kind", "used"}});
    if (each.ssd_quota_bytes == TenantLimits::kNoQuota) continue;
    out.Add(each.ssd_quota_bytes, {{"tenant", each.name}, {"kind", "quota"}});
  }
}

void EmitTenantLeft(In in, Sink& out) {
  for (const TenantStats& each : in.owner.tenants) {
    out.Add(each.expired, {{"tenant", each.name}, {"reason", "expired"}});
    out.Add(each.evicted_for_quota, {{"tenant", each.name}, {"reason", "over-quota"}});
  }
}

void EmitTenantRefused(In in, Sink& out) {
  for (const TenantStats& each : in.owner.tenants) out.Add(each.put_over_quota, {{"tenant", each.name}});
}

void EmitHomeAnswers(In in, Sink& out) {
  out.Add(in.owner.came, {{"kind", "came"}});
  out.Add(in.owner.asked_not_there, {{"kind", "not-there"}});
  out.Add(in.owner.asked_failed, {{"kind", "failed"}});
  out.Add(in.owner.came_corrupt, {{"kind", "corrupt"}});
}

#define TRANSPORT(field)                                                                                 \
  [](In in, Sink& out) {                                                                                 \
    for (const MoverStats& each : in.movers) out.Add(each.stats.field, {{"transport", each.transport}}); \
  }
#define OWNER(field) [](In in, Sink& out) { out.Add(in.owner.field); }
#define KV_EVENTS(field) [](In in, Sink& out) { out.Add(in.info.kv_events.field); }
// Zeros without an SSD tier.
#define SSD(field) [](In in, Sink& out) { out.Add(in.owner.ssd.field); }

void EmitSsdBytes(In in, Sink& out) {
  const ssd::TierStats& s = in.owner.ssd;
  out.Add(s.capacity_bytes, {{"kind", "capacity"}});
  out.Add(s.live_bytes, {{"kind", "live"}});
  out.Add(s.payload_bytes, {{"kind", "payload"}});
  out.Add(s.metadata_bytes, {{"kind", "metadata"}});
}

void EmitSpills(In in, Sink& out) {
  const OwnerStats& s = in.owner;
  out.Add(s.spilled, {{"outcome", "written"}});
  out.Add(s.spilled_clean, {{"outcome", "there-already"}});
  out.Add(s.not_admitted, {{"outcome", "not-admitted"}});
  out.Add(s.spill_failed, {{"outcome", "failed"}});
  out.Add(s.dropped, {{"outcome", "dropped"}});
}

// What was written to flash for a byte of blocks that was asked to be written; 0 before the first.
double WriteAmplification(const ssd::TierStats& s) {
  return s.written_bytes == 0 ? 0 : static_cast<double>(s.disk_bytes) / static_cast<double>(s.written_bytes);
}

// Whole drives a day at the pace since the start.
double DriveWritesADay(In in) {
  const ssd::TierStats& s = in.owner.ssd;
  if (s.capacity_bytes == 0 || in.info.uptime_us == 0) return 0;
  const double days = static_cast<double>(in.info.uptime_us) / 86'400e6;
  return static_cast<double>(s.disk_bytes) / static_cast<double>(s.capacity_bytes) / days;
}

constexpr Metric kMetrics[] = {
    {{"larder_build_info", "", "Version of the program; always 1.", kGauge},
     [](In in, Sink& out) {
       out.Add(1.0, {{"version", LARDER_VERSION}, {"node", in.info.record.id}});
     }},
    {{"larder_ready", "", "1 while the node takes work.", kGauge},
     [](In in, Sink& out) { out.Add(in.info.ready && !in.info.draining ? 1.0 : 0.0); }},
    {{"larder_draining", "", "1 once the node was told to stop.", kGauge},
     [](In in, Sink& out) { out.Add(in.info.draining ? 1.0 : 0.0); }},
    {{"larder_hand_over_blocks", "",
      "Blocks of a node that leaves: found in memory when it began, handed to others, gone in the meantime, "
      "stays (nobody can be given them), left.",
      kGauge},
     EmitHandOver},
    {{"larder_hand_over_bytes", "bytes", "Of them, payload: found and handed.", kGauge},
     [](In in, Sink& out) {
       out.Add(in.info.hand_over.bytes, {{"kind", "found"}});
       out.Add(in.info.hand_over.handed_bytes, {{"kind", "handed"}});
     }},
    {{"larder_under_replicated", "",
      "Blocks of tenants with replicas that have a new place in the table and are not known to be there.",
      kGauge},
     [](In in, Sink& out) { out.Add(in.info.repair.pieces); }},
    {{"larder_restored_total", "", "Copies of blocks that were put where the table has them now.", kCounter},
     [](In in, Sink& out) { out.Add(in.info.repair.restored_pieces); }},
    {{"larder_restored_bytes_total", "bytes", "Of them, payload.", kCounter},
     [](In in, Sink& out) { out.Add(in.info.repair.restored_bytes); }},
    {{"larder_restore_refused_total", "", "Copies that their place can't take.", kCounter},
     [](In in, Sink& out) { out.Add(in.info.repair.refused_pieces); }},
    {{"larder_hot_blocks", "", "Blocks of this node that are read more than their share, or were lately.",
      kGauge},
     OWNER(hot_blocks)},
    {{"larder_hot_copies", "", "Copies of them that other nodes have.", kGauge}, OWNER(hot_copies)},
    {{"larder_hot_copied_total", "", "Such copies that were put elsewhere.", kCounter}, OWNER(hot_copied)},
    {{"larder_hot_copied_bytes_total", "bytes", "Their payload.", kCounter}, OWNER(hot_copied_bytes)},
    {{"larder_hot_revoked_total", "",
      "Blocks that were removed, cleared or ruled out, and whose copies went before that was answered.",
      kCounter},
     OWNER(hot_revoked)},
    {{"larder_hot_revokes_open", "", "Removals that a node with copies has not heard of yet.", kGauge},
     OWNER(revokes_open)},
    {{"larder_near_copies", "", "Copies of this node's blocks on the hosts that read them.", kGauge},
     OWNER(near_copies)},
    {{"larder_near_asked_total", "", "Blocks of others that engines on this host asked for here first.",
      kCounter},
     OWNER(near_asked)},
    {{"larder_near_hits_total", "", "Of them, blocks that were here.", kCounter}, OWNER(near_hits)},
    {{"larder_leased_pieces", "", "Other nodes' blocks that this one has a copy of, hot or near.", kGauge},
     OWNER(leased_pieces)},
    {{"larder_leased_bytes", "bytes", "The memory that they take.", kGauge}, OWNER(leased_bytes)},
    {{"larder_copy_reads_total", "", "Reads that were served from such copies.", kCounter},
     OWNER(copy_reads)},
    {{"larder_leases_ended_total", "", "Copies that went because nobody renewed their lease.", kCounter},
     OWNER(leases_ended)},
    {{"larder_moved_slots", "",
      "Slots that moved here lately: their misses ask the node that was home before.", kGauge},
     OWNER(moved_slots)},
    {{"larder_home_questions_total", "", "Blocks of such slots that their previous home was asked for.",
      kCounter},
     OWNER(asked)},
    {{"larder_home_answers_total", "",
      "What became of it: pieces that came home, blocks that are not there, blocks that failed (the node did "
      "not answer, or was busy), pieces that did not verify.",
      kCounter},
     EmitHomeAnswers},
    {{"larder_home_bytes_total", "bytes", "Payload of the pieces that came home.", kCounter},
     OWNER(came_bytes)},
    {{"larder_home_questions_open", "", "Questions not answered yet.", kGauge}, OWNER(questions_open)},
    {{"larder_home_waiting", "", "Matches and gets that wait for answers.", kGauge}, OWNER(asides)},
    {{"larder_given_blocks_total", "", "Blocks given to nodes that are home to them now.", kCounter},
     OWNER(given)},
    {{"larder_given_bytes_total", "bytes", "Their payload.", kCounter}, OWNER(given_bytes)},
    {{"larder_uptime_seconds", "seconds", "Since the node started.", kGauge},
     [](In in, Sink& out) { out.Add(static_cast<double>(in.info.uptime_us) / 1e6); }},
    {{"larder_table_epoch", "", "Epoch of the node table that this node follows.", kGauge},
     [](In in, Sink& out) { out.Add(in.info.table.epoch); }},
    {{"larder_table_nodes", "", "Nodes in that table.", kGauge},
     [](In in, Sink& out) { out.Add(static_cast<uint64_t>(in.info.table.nodes.size())); }},
    {{"larder_membership_connected", "", "0 while etcd or DNS does not answer; static membership: always 1.",
      kGauge},
     [](In in, Sink& out) { out.Add(!in.membership || in.membership->connected ? 1.0 : 0.0); }},
    {{"larder_membership_live", "",
      "Members that etcd or this node hears of; static membership: the table's nodes.", kGauge},
     [](In in, Sink& out) {
       out.Add(in.membership ? uint64_t{in.membership->live} : uint64_t{in.info.table.nodes.size()});
     }},

    {{"larder_match_requests_total", "", "Match requests answered.", kCounter}, OWNER(matches)},
    {{"larder_match_keys_total", "", "Keys that matches asked for.", kCounter}, OWNER(match_keys)},
    {{"larder_match_hits_total", "", "Of them, those that were here.", kCounter}, OWNER(match_hits)},
    {{"larder_get_requests_total", "", "Get requests answered.", kCounter}, OWNER(gets)},
    {{"larder_get_blocks_total", "", "Blocks that gets asked for.", kCounter}, OWNER(get_blocks)},
    {{"larder_get_hits_total", "", "Of them, those that were sent.", kCounter}, OWNER(get_hits)},
    {{"larder_get_bytes_total", "bytes", "Payload that gets sent.", kCounter}, OWNER(get_bytes)},
    {{"larder_misses_total", "", "Keys of matches and gets that missed, by reason.", kCounter}, EmitMisses},
    {{"larder_puts_total", "", "Pieces that writers offered, by what became of them.", kCounter}, EmitPuts},
    {{"larder_put_bytes_total", "bytes", "Payload of the pieces that were stored.", kCounter},
     OWNER(put_bytes)},
    {{"larder_wait_requests_total", "", "Waits for blocks that are being written.", kCounter}, OWNER(waits)},
    {{"larder_waits_timed_out_total", "", "Of them, those that ended at their deadline.", kCounter},
     OWNER(waits_timed_out)},
    {{"larder_touches_total", "", "Touch requests.", kCounter}, OWNER(touches)},
    {{"larder_turns_finished_total", "", "Requests whose end was told, with or without a hint.", kCounter},
     OWNER(turns_finished)},
    {{"larder_reports_total", "", "Blocks that readers reported as corrupt.", kCounter}, OWNER(reports)},
    {{"larder_reports_dropped_total", "", "Of them, those whose copy here was bad and is gone.", kCounter},
     OWNER(reports_dropped)},
    {{"larder_scrubbed_pieces_total", "", "Pieces in memory that were reread to see whether they verify.",
      kCounter},
     OWNER(scrubbed)},
    {{"larder_scrubbed_bytes_total", "bytes", "Payload of them.", kCounter}, OWNER(scrubbed_bytes)},
    {{"larder_scrub_dropped_total", "", "Pieces in memory that did not and are gone.", kCounter},
     OWNER(scrub_dropped)},
    {{"larder_removed_pieces_total", "", "Pieces removed on request.", kCounter}, OWNER(removed)},
    {{"larder_cleared_pieces_total", "", "Pieces that went with a cleared namespace.", kCounter},
     OWNER(cleared)},
    {{"larder_evicted_pieces_total", "", "Pieces evicted for others.", kCounter}, OWNER(evicted)},
    {{"larder_evicted_bytes_total", "bytes", "Payload of evicted pieces.", kCounter}, OWNER(evicted_bytes)},
    {{"larder_tenant_memory_bytes", "bytes",
      "Slots of tenants with limits (\"*\": of all others together): used, of them pinned by matches, and "
      "the "
      "quota of each.",
      kGauge},
     EmitTenantBytes},
    {{"larder_tenant_ssd_bytes", "bytes", "Payload of such tenants on SSD, and the quota of each.", kGauge},
     EmitTenantSsd},
    {{"larder_tenant_left_pieces_total", "",
      "Pieces of tenants that left because their ttl was over, or for others of the same tenant's quota.",
      kCounter},
     EmitTenantLeft},
    {{"larder_tenant_puts_refused_total", "", "Puts of tenants that did not fit into their quota.", kCounter},
     EmitTenantRefused},
    {{"larder_expired_pieces_total", "", "Pieces that left because their tenant's ttl was over.", kCounter},
     OWNER(expired)},
    {{"larder_expired_bytes_total", "bytes", "Payload of those.", kCounter}, OWNER(expired_bytes)},
    {{"larder_expired_requests_total", "", "Requests whose deadline had passed when their turn came.",
      kCounter},
     OWNER(expired_requests)},
    {{"larder_busy_answers_total", "", "Requests turned away because a bound was reached.", kCounter},
     OWNER(busy_answers)},
    {{"larder_pins_expired_total", "", "Pins of matches that ran out instead of being released.", kCounter},
     OWNER(pins_expired)},

    {{"larder_quarantined_pieces_total", "", "Pieces dropped because a quarantine rules out their writer.",
      kCounter},
     OWNER(quarantined)},
    {{"larder_place_lost_pieces_total", "",
      "Pieces dropped because this node was not their home for a while and may have missed their removal.",
      kCounter},
     OWNER(place_lost)},
    {{"larder_quarantine_rules", "", "Writers whose blocks are ruled out.", kGauge}, OWNER(quarantine_rules)},
    {{"larder_readers_forgotten_total", "", "Notes of who read what that gave way to newer ones.", kCounter},
     OWNER(readers_forgotten)},
    {{"larder_bypass", "", "1 while an operator has everything answered as a miss.", kGauge},
     [](In in, Sink& out) { out.Add(in.owner.bypass ? 1.0 : 0.0); }},

    {{"larder_memory_bytes", "bytes",
      "Memory by kind: capacity as configured; slabs, slots and payload each a part of the one before; "
      "metadata "
      "beside it; pinned softly; prefaulted.",
      kGauge},
     EmitMemory},
    {{"larder_pieces", "", "Whole pieces in memory.", kGauge}, OWNER(pieces)},
    {{"larder_tickets", "", "Puts under way.", kGauge}, OWNER(tickets)},
    {{"larder_waits_open", "", "Waits not answered yet.", kGauge}, OWNER(waits_open)},
    {{"larder_pins", "", "Pins held: soft ones by matches, hard ones by transfers.", kGauge},
     [](In in, Sink& out) {
       out.Add(in.owner.soft_pins, {{"kind", "soft"}});
       out.Add(in.owner.hard_pins, {{"kind", "hard"}});
     }},
    {{"larder_sessions", "", "Connections that said hello.", kGauge}, OWNER(sessions)},
    {{"larder_namespaces", "", "Namespaces known.", kGauge}, OWNER(namespaces)},

    {{"larder_ssd_bytes", "bytes",
      "SSD by kind: capacity; live records, whole pages; their payload; metadata in memory.", kGauge},
     EmitSsdBytes},
    {{"larder_ssd_pieces", "", "Pieces on SSD.", kGauge}, SSD(pieces)},
    {{"larder_ssd_segments", "", "Segment files.", kGauge}, SSD(segments)},
    {{"larder_ssd_segments_free", "", "Segments that could be written, not yet made ones included.", kGauge},
     SSD(free_segments)},
    {{"larder_ssd_disks", "", "Directories of the SSD tier.", kGauge}, SSD(disks)},
    {{"larder_ssd_disks_lost", "", "Of them, those left out because they failed.", kGauge}, SSD(disks_lost)},
    {{"larder_ssd_loaded", "", "1 once every disk's index is in memory.", kGauge},
     [](In in, Sink& out) { out.Add(in.owner.ssd.loaded ? 1.0 : 0.0); }},
    {{"larder_ssd_scrubbed_pieces_total", "", "Pieces on SSD that were reread to see whether they verify.",
      kCounter},
     SSD(scrubbed)},
    {{"larder_ssd_scrubbed_bytes_total", "bytes", "What was read for it.", kCounter}, SSD(scrubbed_bytes)},
    {{"larder_ssd_reads_total", "", "Reads of pieces on SSD.", kCounter}, SSD(reads)},
    {{"larder_ssd_read_bytes_total", "bytes", "Bytes that those reads took from the disks.", kCounter},
     SSD(read_bytes)},
    {{"larder_ssd_read_errors_total", "", "Reads that a disk refused.", kCounter}, SSD(read_errors)},
    {{"larder_ssd_corrupt_total", "", "Records whose bytes were not what they should be.", kCounter},
     SSD(corrupt)},
    {{"larder_ssd_write_errors_total", "", "Writes that a disk refused.", kCounter}, SSD(write_errors)},
    {{"larder_ssd_written_bytes_total", "bytes", "Written to segments, whatever for.", kCounter},
     SSD(disk_bytes)},
    {{"larder_ssd_evicted_pieces_total", "", "Pieces that went with a reclaimed segment.", kCounter},
     SSD(evicted)},
    {{"larder_ssd_carried_bytes_total", "bytes", "Payload that was kept when its segment went.", kCounter},
     SSD(carried_bytes)},
    {{"larder_ssd_reclaims_total", "", "Segments reclaimed.", kCounter}, SSD(reclaims)},
    {{"larder_ssd_write_amplification", "", "Bytes written to flash for a byte of blocks.", kGauge},
     [](In in, Sink& out) { out.Add(WriteAmplification(in.owner.ssd)); }},
    {{"larder_ssd_drive_writes_per_day", "", "Capacity written over in a day, at the pace since the start.",
      kGauge},
     [](In in, Sink& out) { out.Add(DriveWritesADay(in)); }},
    {{"larder_spilled_pieces_total", "",
      "Pieces that left memory beside an SSD tier; dropped: evicted because it was behind.", kCounter},
     EmitSpills},
    {{"larder_spilling_bytes", "bytes", "Memory of pieces on their way to SSD.", kGauge},
     [](In in, Sink& out) { out.Add(in.owner.spilling_bytes); }},
    {{"larder_ssd_hits_total", "", "Blocks of gets that came from SSD.", kCounter}, OWNER(ssd_hits)},
    {{"larder_ssd_hit_bytes_total", "bytes", "Their payload.", kCounter}, OWNER(ssd_hit_bytes)},
    {{"larder_get_parts_total", "", "Replies to gets that did not wait for the rest from SSD.", kCounter},
     OWNER(get_parts)},
    {{"larder_promoted_pieces_total", "", "Pieces moved from SSD into memory.", kCounter}, OWNER(promoted)},
    {{"larder_prefetched_blocks_total", "", "Blocks that prefetches found or moved into memory.", kCounter},
     OWNER(prefetched)},
    {{"larder_ssd_too_late_total", "", "Blocks on SSD that a get's deadline did not wait for.", kCounter},
     OWNER(cold_timed_out)},

    {{"larder_events_total", "", "Pieces that came or went, as followers hear of it.", kCounter},
     OWNER(events)},
    {{"larder_event_streams", "", "Followers of events.", kGauge},
     [](In in, Sink& out) { out.Add(uint64_t{in.info.event_streams}); }},
    {{"larder_event_gaps_total", "", "Times that a follower had fallen behind and began anew.", kCounter},
     OWNER(event_gaps)},
    {{"larder_kv_event_messages_total", "", "Messages of KV events published.", kCounter},
     KV_EVENTS(messages)},
    {{"larder_kv_event_bytes_total", "bytes", "Their payload.", kCounter}, KV_EVENTS(bytes)},
    {{"larder_kv_event_blocks_total", "", "Blocks of engines that were published, by what happened.",
      kCounter},
     EmitKvEventBlocks},
    {{"larder_kv_event_clears_total", "", "Times that a topic was told to be empty.", kCounter},
     KV_EVENTS(cleared)},
    {{"larder_kv_event_unread_total", "",
      "Blocks on SSD that were not published, since their head there could not be read.", kCounter},
     KV_EVENTS(unread)},
    {{"larder_kv_event_replays_total", "", "Replays of KV events that were asked for.", kCounter},
     KV_EVENTS(replays)},
    {{"larder_kv_event_replay_snapshots_total", "",
      "Topics that they told anew, since too much had been missed.", kCounter},
     KV_EVENTS(replay_snapshots)},
    {{"larder_kv_event_replays_dropped_total", "", "Replays that ended before the client had all.", kCounter},
     KV_EVENTS(replays_dropped)},
    {{"larder_kv_event_bad_requests_total", "", "What was asked for in another form.", kCounter},
     KV_EVENTS(bad_requests)},
    {{"larder_kv_event_known_blocks", "", "Blocks that the publisher of KV events knows.", kGauge},
     KV_EVENTS(blocks)},
    {{"larder_kv_event_kept_messages", "", "Messages kept for replays.", kGauge}, KV_EVENTS(kept_messages)},
    {{"larder_kv_event_kept_bytes", "bytes", "Their payload.", kGauge}, KV_EVENTS(kept_bytes)},
    {{"larder_connections_refused_total", "", "Connections turned away beyond connections_max.", kCounter},
     [](In in, Sink& out) { out.Add(in.info.connections_refused); }},
    {{"larder_hello_timeouts_total", "", "Connections closed because they said no hello in time.", kCounter},
     [](In in, Sink& out) { out.Add(in.info.hello_timeouts); }},
    {{"larder_transport_connections", "", "Open connections, by transport.", kGauge}, TRANSPORT(connections)},
    {{"larder_transport_sent_bytes_total", "bytes", "Payload sent.", kCounter}, TRANSPORT(sent_bytes)},
    {{"larder_transport_received_bytes_total", "bytes", "Payload received.", kCounter},
     TRANSPORT(received_bytes)},
    {{"larder_transport_sent_messages_total", "", "Messages sent.", kCounter}, TRANSPORT(sent_messages)},
    {{"larder_transport_received_messages_total", "", "Messages received.", kCounter},
     TRANSPORT(received_messages)},
    {{"larder_transport_refused_messages_total", "", "Messages whose payload was thrown away.", kCounter},
     TRANSPORT(refused_messages)},
    {{"larder_transport_protocol_errors_total", "", "Peers cut off for what makes no sense.", kCounter},
     TRANSPORT(protocol_errors)},
    {{"larder_transport_stalled_total", "", "Connections closed because nothing moved.", kCounter},
     TRANSPORT(stalled_closed)},

    {{"process_cpu_seconds_total", "seconds", "Processor time used, user and system.", kCounter},
     [](In in, Sink& out) { out.Add(in.process.cpu_seconds); }},
    {{"process_resident_memory_bytes", "bytes", "Memory in RAM.", kGauge},
     [](In in, Sink& out) { out.Add(in.process.resident_bytes); }},
    {{"process_virtual_memory_bytes", "bytes", "Address space.", kGauge},
     [](In in, Sink& out) { out.Add(in.process.virtual_bytes); }},
    {{"process_threads", "", "Threads.", kGauge}, [](In in, Sink& out) { out.Add(in.process.threads); }},
    {{"process_open_fds", "", "Open file descriptors.", kGauge},
     [](In in, Sink& out) { out.Add(in.process.open_files); }},
    {{"process_max_fds", "", "File descriptors that may be open.", kGauge},
     [](In in, Sink& out) { out.Add(in.process.open_files_max); }},
};

}  // namespace

std::vector<MetricInfo> MetricList() {
  std::vector<MetricInfo> out;
  for (const Metric& metric : kMetrics) out.push_back(metric.info);
  return out;
}

std::vector<prometheus::MetricFamily> Collect(const MetricsInput& input) {
  std::vector<prometheus::MetricFamily> out;
  out.reserve(std::size(kMetrics));
  for (const Metric& metric : kMetrics) {
    prometheus::MetricFamily& family = out.emplace_back();
    family.name = metric.info.name;
    family.help = metric.info.help;
    family.type = metric.info.type;
    Sink sink(&family);
    metric.emit(input, sink);
  }
  return out;
}

std::string MetricsText(const MetricsInput& input) {
  return prometheus::TextSerializer().Serialize(Collect(input));
}

std::string FlatName(const prometheus::MetricFamily& family, const prometheus::ClientMetric& metric) {
  std::string out = family.name;
  for (size_t i = 0; i < metric.label.size(); i++) {
    out += (i == 0 ? "{" : ",") + metric.label[i].name + "=\"" + metric.label[i].value + "\"";
  }
  return metric.label.empty() ? out : out + "}";
}

}  // namespace larder::node
