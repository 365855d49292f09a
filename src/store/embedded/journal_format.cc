#include "store/embedded/journal_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/time_text.h"
#include "store/embedded/crc32c.h"

namespace dlo::store {
namespace {

// CR LF in it: a copy that turned line ends breaks the magic, not the data behind it.
constexpr std::string_view kSegmentMagic("DLOSEG\r\n", 8);
constexpr std::uint8_t kReceiptType = 1;
constexpr std::uint8_t kVerifiedFlag = 1, kOccurredFlag = 2, kSignedFlag = 4, kAllFlags = 7;

// Offsets within the fixed part of a record.
constexpr std::size_t kCrcAt = 4, kTypeAt = 8, kDispositionAt = 9, kLivemodeAt = 10, kFlagsAt = 11, kHeaderCountAt = 12,
                      kSeqAt = 16, kReceivedAt = 24, kOccurredAt = 32, kSignedAt = 40, kDigestAt = 48, kLengthsAt = 80,
                      kHeaderBytesAt = 112, kBodyBytesAt = 116;
constexpr std::size_t kTexts = 8;
static_assert(kLengthsAt + kTexts * 4 == kHeaderBytesAt && kBodyBytesAt + 4 == kRecordFixedBytes);

template <typename T>
void Put(char* out, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (std::size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<char>(value >> (8 * i));
}

template <typename T>
T Get(std::string_view bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[at + i])) << (8 * i));
  }
  return value;
}

std::array<const std::string*, kTexts> TextsOf(const Receipt& r) {
  return {&r.source,
          &r.key,
          &r.kind,
          &r.subject,
          &r.account,
          &r.verdict.scheme,
          &r.verdict.secret_id,
          &r.disposition_reason};
}

char* PutBytes(char* out, std::string_view bytes) {
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

std::uint64_t HeaderListBytes(const Receipt& receipt) {
  std::uint64_t bytes = 0;
  for (const Header& header : receipt.headers) bytes += 8 + header.name.size() + header.value.size();
  return bytes;
}

// Calls `each(name, value)`; false if the bytes are not exactly `count` pairs.
template <typename Each>
bool ForEachHeader(std::string_view bytes, std::uint32_t count, Each each) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (bytes.size() < 8) return false;
    const std::uint64_t name = Get<std::uint32_t>(bytes, 0), value = Get<std::uint32_t>(bytes, 4);
    if (bytes.size() - 8 < name + value) return false;
    each(bytes.substr(8, name), bytes.substr(8 + name, value));
    bytes.remove_prefix(8 + name + value);
  }
  return bytes.empty();
}

bool AllZero(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return c == 0; });
}

}  // namespace

void EncodeSegmentHeader(const SegmentHeader& header, char* out) {
  std::memset(out, 0, kSegmentHeaderBytes);
  PutBytes(out, kSegmentMagic);
  Put(out + 8, kJournalVersion);
  Put(out + 12, static_cast<std::uint32_t>(kSegmentHeaderBytes));
  Put(out + 16, header.number);
  Put(out + 24, header.first_seq);
  Put(out + 32, static_cast<std::uint64_t>(header.created_at));
  Put(out + 40, header.salt);
  Put(out + 48, header.previous_bytes);
  std::memcpy(out + 56, header.previous_sha256.data(), header.previous_sha256.size());
  Put(out + 124, Crc32c({out, 124}));
}

std::expected<SegmentHeader, SegmentFault> DecodeSegmentHeader(std::string_view bytes) {
  if (AllZero(bytes.substr(0, kSegmentHeaderBytes))) return std::unexpected(SegmentFault::empty);
  if (!bytes.starts_with(kSegmentMagic)) return std::unexpected(SegmentFault::foreign);
  if (bytes.size() < kSegmentHeaderBytes) return std::unexpected(SegmentFault::damaged);
  // Before the checksum: a later format may keep its own elsewhere, and the magic is long enough to know it is ours.
  if (Get<std::uint32_t>(bytes, 8) > kJournalVersion) return std::unexpected(SegmentFault::newer);
  if (Get<std::uint32_t>(bytes, 124) != Crc32c(bytes.substr(0, 124)) ||
      Get<std::uint32_t>(bytes, 8) != kJournalVersion || Get<std::uint32_t>(bytes, 12) != kSegmentHeaderBytes) {
    return std::unexpected(SegmentFault::damaged);
  }
  SegmentHeader header;
  header.number = Get<std::uint64_t>(bytes, 16);
  header.first_seq = Get<std::uint64_t>(bytes, 24);
  header.created_at = static_cast<std::int64_t>(Get<std::uint64_t>(bytes, 32));
  header.salt = Get<std::uint64_t>(bytes, 40);
  header.previous_bytes = Get<std::uint64_t>(bytes, 48);
  std::memcpy(header.previous_sha256.data(), bytes.data() + 56, header.previous_sha256.size());
  return header;
}

void EncodeBatchHeader(const BatchHeader& header, char* out) {
  PutBytes(out, kBatchMagic);
  Put(out + 8, header.bytes);
  Put(out + 16, header.salt);
  Put(out + 24, header.first_seq);
  Put(out + 32, header.durable_upto);
  Put(out + 40, header.records);
  Put(out + 44, header.records_crc);
  Put(out + 48, std::uint32_t{0});
  Put(out + 52, Crc32c({out, 52}));
}

std::optional<BatchHeader> DecodeBatchHeader(std::string_view bytes) {
  if (bytes.size() < kBatchHeaderBytes || !bytes.starts_with(kBatchMagic) ||
      Get<std::uint32_t>(bytes, 52) != Crc32c(bytes.substr(0, 52))) {
    return std::nullopt;
  }
  BatchHeader header;
  header.bytes = Get<std::uint64_t>(bytes, 8);
  header.salt = Get<std::uint64_t>(bytes, 16);
  header.first_seq = Get<std::uint64_t>(bytes, 24);
  header.durable_upto = Get<std::uint64_t>(bytes, 32);
  header.records = Get<std::uint32_t>(bytes, 40);
  header.records_crc = Get<std::uint32_t>(bytes, 44);
  return header;
}

std::size_t RecordHeadBytes(const Receipt& receipt) {
  std::uint64_t bytes = kRecordFixedBytes + HeaderListBytes(receipt);
  for (const std::string* text : TextsOf(receipt)) bytes += text->size();
  return bytes;
}

void EncodeRecordHead(const Receipt& receipt, const Sha256Digest& body_sha256, std::size_t head_bytes, char* out) {
  const auto micros = [](const std::optional<Time>& time) {
    return time ? static_cast<std::uint64_t>(ToMicros(*time)) : std::uint64_t{0};
  };
  Put(out, static_cast<std::uint32_t>(head_bytes + receipt.body.size()));
  Put(out + kTypeAt, kReceiptType);
  Put(out + kDispositionAt, static_cast<std::uint8_t>(receipt.disposition));
  Put(out + kLivemodeAt, static_cast<std::uint8_t>(!receipt.livemode ? 0 : *receipt.livemode ? 2 : 1));
  Put(out + kFlagsAt, static_cast<std::uint8_t>((receipt.verdict.verified ? kVerifiedFlag : 0) |
                                                (receipt.occurred_at ? kOccurredFlag : 0) |
                                                (receipt.verdict.signed_at ? kSignedFlag : 0)));
  Put(out + kHeaderCountAt, static_cast<std::uint32_t>(receipt.headers.size()));
  Put(out + kSeqAt, static_cast<std::uint64_t>(receipt.id));
  Put(out + kReceivedAt, static_cast<std::uint64_t>(ToMicros(receipt.received_at)));
  Put(out + kOccurredAt, micros(receipt.occurred_at));
  Put(out + kSignedAt, micros(receipt.verdict.signed_at));
  std::memcpy(out + kDigestAt, body_sha256.data(), body_sha256.size());
  char* at = out + kRecordFixedBytes;
  char* length_at = out + kLengthsAt;
  for (const std::string* text : TextsOf(receipt)) {
    Put(length_at, static_cast<std::uint32_t>(text->size()));
    length_at += 4;
    at = PutBytes(at, *text);
  }
  Put(out + kHeaderBytesAt, static_cast<std::uint32_t>(HeaderListBytes(receipt)));
  Put(out + kBodyBytesAt, static_cast<std::uint32_t>(receipt.body.size()));
  for (const Header& header : receipt.headers) {
    Put(at, static_cast<std::uint32_t>(header.name.size()));
    Put(at + 4, static_cast<std::uint32_t>(header.value.size()));
    at = PutBytes(PutBytes(at + 8, header.name), header.value);
  }
  // Over everything but the field itself.
  std::uint32_t crc = Crc32c({out, kCrcAt});
  crc = Crc32c({out + kTypeAt, head_bytes - kTypeAt}, crc);
  crc = Crc32c(receipt.body, crc);
  Put(out + kCrcAt, crc);
}

std::uint32_t ContinueRecordsCrc(const char* head, std::uint32_t so_far) {
  return Crc32c({head + kCrcAt, 4}, so_far);
}

std::expected<RecordView, const char*> DecodeRecord(std::string_view bytes) {
  if (bytes.size() < kRecordFixedBytes) return std::unexpected("the record is cut off");
  const std::uint64_t length = Get<std::uint32_t>(bytes, 0);
  if (length < kRecordFixedBytes || length > kMaxRecordBytes)
    return std::unexpected("the record's length is impossible");
  if (length > bytes.size()) return std::unexpected("the record is cut off");
  bytes = bytes.substr(0, length);
  RecordView record;
  record.bytes = length;
  if (Get<std::uint32_t>(bytes, kCrcAt) != Crc32c(bytes.substr(kTypeAt), Crc32c(bytes.substr(0, kCrcAt)))) {
    return std::unexpected("the record does not match its checksum");
  }
  const auto type = Get<std::uint8_t>(bytes, kTypeAt), disposition = Get<std::uint8_t>(bytes, kDispositionAt),
             livemode = Get<std::uint8_t>(bytes, kLivemodeAt), flags = Get<std::uint8_t>(bytes, kFlagsAt);
  if (type != kReceiptType) return std::unexpected("the record is of an unknown type");
  if (disposition > static_cast<std::uint8_t>(Disposition::test_event) || livemode > 2 || (flags & ~kAllFlags) != 0) {
    return std::unexpected("a field of the record has an impossible value");
  }
  record.disposition = static_cast<Disposition>(disposition);
  if (livemode != 0) record.livemode = livemode == 2;
  record.verified = (flags & kVerifiedFlag) != 0;
  record.seq = Get<std::uint64_t>(bytes, kSeqAt);
  record.received_at = static_cast<std::int64_t>(Get<std::uint64_t>(bytes, kReceivedAt));
  if ((flags & kOccurredFlag) != 0)
    record.occurred_at = static_cast<std::int64_t>(Get<std::uint64_t>(bytes, kOccurredAt));
  if ((flags & kSignedFlag) != 0) record.signed_at = static_cast<std::int64_t>(Get<std::uint64_t>(bytes, kSignedAt));
  std::memcpy(record.body_sha256.data(), bytes.data() + kDigestAt, record.body_sha256.size());
  record.header_count = Get<std::uint32_t>(bytes, kHeaderCountAt);

  std::string_view rest = bytes.substr(kRecordFixedBytes);
  const auto take = [&rest](std::uint64_t size, std::string_view& out) {
    if (size > rest.size()) return false;
    out = rest.substr(0, size);
    rest.remove_prefix(size);
    return true;
  };
  std::array<std::string_view*, kTexts> texts = {
      &record.source,  &record.key,    &record.kind,      &record.subject,
      &record.account, &record.scheme, &record.secret_id, &record.disposition_reason};
  bool whole = true;
  for (std::size_t i = 0; i < kTexts; ++i)
    whole = whole && take(Get<std::uint32_t>(bytes, kLengthsAt + i * 4), *texts[i]);
  whole = whole && take(Get<std::uint32_t>(bytes, kHeaderBytesAt), record.headers);
  whole = whole && take(Get<std::uint32_t>(bytes, kBodyBytesAt), record.body);
  if (!whole || !rest.empty()) return std::unexpected("the lengths inside the record do not add up");
  if (!ForEachHeader(record.headers, record.header_count, [](std::string_view, std::string_view) {})) {
    return std::unexpected("the headers inside the record do not add up");
  }
  return record;
}

std::shared_ptr<Receipt> ReceiptOf(const RecordView& record) {
  auto receipt = std::make_shared<Receipt>();
  receipt->id = static_cast<EventId>(record.seq);
  receipt->source = record.source;
  receipt->key = record.key;
  receipt->kind = record.kind;
  receipt->subject = record.subject;
  receipt->account = record.account;
  receipt->livemode = record.livemode;
  if (record.occurred_at) receipt->occurred_at = FromMicros(*record.occurred_at);
  receipt->received_at = FromMicros(record.received_at);
  receipt->verdict.verified = record.verified;
  receipt->verdict.scheme = record.scheme;
  receipt->verdict.secret_id = record.secret_id;
  if (record.signed_at) receipt->verdict.signed_at = FromMicros(*record.signed_at);
  receipt->disposition = record.disposition;
  receipt->disposition_reason = record.disposition_reason;
  receipt->headers.reserve(record.header_count);
  ForEachHeader(record.headers, record.header_count, [&](std::string_view name, std::string_view value) {
    receipt->headers.push_back({std::string(name), std::string(value)});
  });
  receipt->body = record.body;
  return receipt;
}

std::expected<BatchHeader, const char*> DecodeBatch(std::string_view bytes, const SegmentHeader& segment,
                                                    std::uint64_t offset, std::uint64_t last_seq,
                                                    std::vector<RecordView>& records) {
  records.clear();
  const auto header = DecodeBatchHeader(bytes);
  if (!header) return std::unexpected("there is no batch header");
  if (header->salt != segment.salt) return std::unexpected("the batch belongs to another segment");
  if (header->first_seq != last_seq + 1) return std::unexpected("the batch does not follow the record before it");
  if (header->durable_upto < kSegmentHeaderBytes || header->durable_upto > offset ||
      header->bytes < kBatchHeaderBytes) {
    return std::unexpected("the batch header has an impossible value");
  }
  if (header->bytes > bytes.size()) return std::unexpected("the batch is cut off");
  std::string_view rest = bytes.substr(0, header->bytes).substr(kBatchHeaderBytes);
  // A count that the bytes cannot hold must not make us reserve memory for it.
  if (header->records == 0 || header->records > rest.size() / kRecordFixedBytes) {
    return std::unexpected("the batch's number of records is impossible");
  }
  records.reserve(header->records);
  std::uint32_t records_crc = 0;
  for (std::uint32_t i = 0; i < header->records; ++i) {
    const auto record = DecodeRecord(rest);
    if (!record) return std::unexpected(record.error());
    if (record->seq != header->first_seq + i) return std::unexpected("a record of the batch is out of order");
    // Its length is in the head that was decoded within bounds just now.
    records_crc = ContinueRecordsCrc(&rest.front(), records_crc);
    rest.remove_prefix(record->bytes);
    records.push_back(*record);
  }
  if (!rest.empty()) return std::unexpected("there are bytes behind the batch's last record");
  if (records_crc != header->records_crc) return std::unexpected("the records are not those of their batch header");
  return *header;
}

}  // namespace dlo::store
