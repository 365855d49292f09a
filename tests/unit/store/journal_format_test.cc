#include "store/embedded/journal_format.h"

#include <gtest/gtest.h>

#include "unit/store/journal_fixture.h"

namespace dlo::store {
namespace {

std::string Record(const std::string& body) {
  const auto receipt = MakeReceipt("k", body);
  receipt->id = 1;
  const std::size_t head = RecordHeadBytes(*receipt);
  std::string bytes(head, '\0');
  EncodeRecordHead(*receipt, Sha256(body), head, bytes.data());
  return bytes + body;
}

struct Batch {
  SegmentHeader segment;
  BatchHeader header;
  std::string record = Record("first");

  Batch() {
    segment.salt = header.salt = 7;
    header.first_seq = header.records = 1;
    header.durable_upto = kSegmentHeaderBytes;
    header.bytes = kBatchHeaderBytes + record.size();
    header.records_crc = ContinueRecordsCrc(record.data(), 0);
  }
  [[nodiscard]] std::string Bytes() const {
    std::string bytes(kBatchHeaderBytes, '\0');
    EncodeBatchHeader(header, bytes.data());
    return bytes + record;
  }
  [[nodiscard]] bool Decodes(std::uint64_t offset = kSegmentHeaderBytes) const {
    std::vector<RecordView> records;
    return DecodeBatch(Bytes(), segment, offset, 0, records).has_value();
  }
};

TEST(JournalFormatTest, BatchHeaderTakesOnlyItsOwnRecords) {
  Batch batch;
  ASSERT_TRUE(batch.Decodes());
  // What an earlier try that met a full disk left in the same place: as long, of the same seq, its own checksum right.
  batch.record = Record("other");
  EXPECT_FALSE(batch.Decodes());
}

TEST(JournalFormatTest, BatchHeaderValuesAreHeldToTheirBounds) {
  const struct {
    const char* name;
    void (*change)(Batch&);
    bool decodes;
  } rows[] = {
      {"as written", [](Batch&) {}, true},
      {"salt of another segment", [](Batch& b) { b.header.salt = 8; }, false},
      {"seq before", [](Batch& b) { b.header.first_seq = 0; }, false},
      {"seq behind", [](Batch& b) { b.header.first_seq = 2; }, false},
      {"durable within the segment header", [](Batch& b) { b.header.durable_upto = kSegmentHeaderBytes - 1; }, false},
      {"durable behind itself", [](Batch& b) { b.header.durable_upto = kSegmentHeaderBytes + 1; }, false},
      {"a byte too long", [](Batch& b) { ++b.header.bytes; }, false},
      {"a byte too short", [](Batch& b) { --b.header.bytes; }, false},
      {"shorter than its header", [](Batch& b) { b.header.bytes = kBatchHeaderBytes - 1; }, false},
      {"longer than memory", [](Batch& b) { b.header.bytes = UINT64_MAX; }, false},
      {"no records", [](Batch& b) { b.header.records = 0; }, false},
      {"more records than fit", [](Batch& b) { b.header.records = UINT32_MAX; }, false},
      {"a record more", [](Batch& b) { b.header.records = 2; }, false},
  };
  for (const auto& row : rows) {
    Batch batch;
    row.change(batch);
    EXPECT_EQ(batch.Decodes(), row.decodes) << row.name;
  }
}

TEST(JournalFormatTest, SegmentHeaderComesBackAsItWas) {
  SegmentHeader header{
      .number = 3, .first_seq = 99, .created_at = -5, .salt = 1, .previous_bytes = 77, .previous_sha256 = Sha256("x")};
  char bytes[kSegmentHeaderBytes];
  EncodeSegmentHeader(header, bytes);
  const auto read = DecodeSegmentHeader({bytes, sizeof bytes});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, header.number);
  EXPECT_EQ(read->first_seq, header.first_seq);
  EXPECT_EQ(read->created_at, header.created_at);
  EXPECT_EQ(read->salt, header.salt);
  EXPECT_EQ(read->previous_bytes, header.previous_bytes);
  EXPECT_EQ(read->previous_sha256, header.previous_sha256);
}

}  // namespace
}  // namespace dlo::store
