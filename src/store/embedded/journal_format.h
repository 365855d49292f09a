// The bytes of a journal segment: encoding, and decoding that trusts nothing. docs/formats.md has the tables.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/encoding.h"
#include "dlo/event.h"

namespace dlo::store {

inline constexpr std::uint32_t kJournalVersion = 1;
inline constexpr std::size_t kSegmentHeaderBytes = 128;
inline constexpr std::size_t kBatchHeaderBytes = 56;
inline constexpr std::size_t kRecordFixedBytes = 120;
/// Lengths in a record are 32 bits wide; this keeps far from their end, and the memory of a reader small. Sources have
/// much smaller limits.
inline constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{128} << 20;
inline constexpr std::string_view kBatchMagic = "DLOBATCH";

struct SegmentHeader {
  std::uint64_t number = 0;
  std::uint64_t first_seq = 0;
  std::int64_t created_at = 0;  // microseconds since 1970, UTC
  /// Secret from senders. Each batch header repeats it, so that a body crafted to look like a batch is never taken for
  /// one while recovery looks through a torn tail.
  std::uint64_t salt = 0;
  std::uint64_t previous_bytes = 0;  // used bytes of the segment before; 0 in the first
  Sha256Digest previous_sha256{};    // of those bytes
};

struct BatchHeader {
  std::uint64_t bytes = 0;  // of the whole batch with this header
  std::uint64_t salt = 0;
  std::uint64_t first_seq = 0;
  std::uint64_t durable_upto = 0;  // everything before this offset of the segment was durable when this was written
  std::uint32_t records = 0;
  std::uint32_t records_crc = 0;  // CRC-32C of the records' CRCs in order: binds exactly these records to this header
};

/// A decoded record; the views point into the bytes it was decoded from.
struct RecordView {
  std::uint64_t seq = 0;
  std::size_t bytes = 0;  // of the whole record
  bool verified = false;
  std::optional<bool> livemode;
  Disposition disposition = Disposition::dispatch;
  std::int64_t received_at = 0;
  std::optional<std::int64_t> occurred_at, signed_at;
  std::string_view source, key, kind, subject, account, scheme, secret_id, disposition_reason;
  std::uint32_t header_count = 0;
  std::string_view headers;  // checked: `header_count` pairs, nothing else
  std::string_view body;
  Sha256Digest body_sha256{};
};

enum class SegmentFault : unsigned char {
  empty,
  foreign,
  newer,
  damaged
};  // empty = nothing but zeros, or nothing at all

void EncodeSegmentHeader(const SegmentHeader& header, char* out);
[[nodiscard]] std::expected<SegmentHeader, SegmentFault> DecodeSegmentHeader(std::string_view bytes);

void EncodeBatchHeader(const BatchHeader& header, char* out);
/// Magic and checksum only; nullopt if either is wrong or `bytes` is too short.
[[nodiscard]] std::optional<BatchHeader> DecodeBatchHeader(std::string_view bytes);

/// Size of a record without its body, and of the whole.
[[nodiscard]] std::size_t RecordHeadBytes(const Receipt& receipt);
/// Writes all of the record but its body, which follows it in the file.
void EncodeRecordHead(const Receipt& receipt, const Sha256Digest& body_sha256, std::size_t head_bytes, char* out);

/// `so_far` taken further by the encoded record at `head`: BatchHeader::records_crc.
[[nodiscard]] std::uint32_t ContinueRecordsCrc(const char* head, std::uint32_t so_far);

/// Decodes the record at the start of `bytes`. The error says what is wrong, for people.
[[nodiscard]] std::expected<RecordView, const char*> DecodeRecord(std::string_view bytes);
[[nodiscard]] std::shared_ptr<Receipt> ReceiptOf(const RecordView& record);

/// Decodes the whole batch at the start of `bytes`, which begins at `offset` of a segment, after record `last_seq`.
[[nodiscard]] std::expected<BatchHeader, const char*> DecodeBatch(std::string_view bytes, const SegmentHeader& segment,
                                                                  std::uint64_t offset, std::uint64_t last_seq,
                                                                  std::vector<RecordView>& records);

}  // namespace dlo::store
