#include "store/embedded/journal_verify.h"

#include <fmt/format.h>

#include <optional>

#include "store/embedded/journal_segment.h"

namespace dlo::store {
namespace {

constexpr std::size_t kReadAhead = std::size_t{1} << 20;

struct Link {
  SegmentHeader header;
  std::unique_ptr<File> file;
  std::string path;
};

class Verifier {
 public:
  Verifier(Files& files, const std::string& folder, const JournalVisitor& visit)
      : files_(files), folder_(folder), visit_(visit) {}

  Result<JournalReport> Run() {
    const auto names = files_.List(folder_);
    if (!names) return std::unexpected(names.error());
    std::int64_t expected = 1;
    for (const std::string& name : *names) {
      const auto number = SegmentNumber(name);
      if (!number) continue;
      if (*number != expected) {
        report_.problems.push_back(
            expected == *number - 1
                ? fmt::format("{}/{} is missing", folder_, SegmentName(expected))
                : fmt::format("{0}/{1} to {2} are missing", folder_, SegmentName(expected), SegmentName(*number - 1)));
        if (auto done = CloseSegment(nullptr); !done) return std::unexpected(done.error());
        before_.reset();
      }
      expected = *number + 1;
      if (auto opened = OpenSegment(*number); !opened) return std::unexpected(opened.error());
    }
    if (auto done = CloseSegment(nullptr); !done) return std::unexpected(done.error());
    return std::move(report_);
  }

 private:
  void Problem(std::uint64_t offset, const std::string& path, std::string_view what) {
    report_.problems.push_back(fmt::format("{} at offset {}: {}", path, offset, what));
  }

  Result<void> OpenSegment(std::int64_t number) {
    ++report_.segments;
    Link link{{}, nullptr, folder_ + "/" + SegmentName(number)};
    auto file = files_.Open(link.path, OpenMode::read);
    if (!file) return std::unexpected(file.error());
    link.file = std::move(*file);
    const auto header = ReadSegmentHeader(*link.file, link.path, number);
    if (!header || !*header) {
      if (!header && header.error().code == "io") return std::unexpected(header.error());
      report_.problems.push_back(header ? fmt::format("{} has no header, all zeros", link.path)
                                        : header.error().message);
      auto done = CloseSegment(nullptr);
      before_.reset();
      return done;
    }
    link.header = **header;
    if (auto done = CloseSegment(&link.header); !done) return done;
    before_ = std::move(link);
    return {};
  }

  // The segment before, now that its successor's header (null: there is none) says where it ends.
  Result<void> CloseSegment(const SegmentHeader* next) {
    if (!before_) return {};
    const Link& link = *before_;
    const auto size = link.file->Size();
    if (!size) return std::unexpected(size.error());
    const std::uint64_t limit = next != nullptr ? next->previous_bytes : *size;
    BatchReader reader(*link.file, link.header, kSegmentHeaderBytes, limit, link.header.first_seq - 1, kReadAhead);
    while (true) {
      const auto more = reader.Next();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      std::uint64_t position = reader.batch_offset() + kBatchHeaderBytes;
      for (const RecordView& record : reader.records()) {
        if (visit_) visit_(record, static_cast<std::int64_t>(link.header.number), position);
        if (Sha256(record.body) != record.body_sha256) {
          Problem(position, link.path, fmt::format("the body of event {} does not match its SHA-256", record.seq));
        }
        position += record.bytes;
        ++report_.records;
      }
    }
    report_.bytes += static_cast<std::int64_t>(reader.next_offset());
    report_.last_seq = static_cast<std::int64_t>(reader.last_seq());
    return next != nullptr ? CheckSealed(link, reader, *next) : CheckLast(link, reader);
  }

  Result<void> CheckSealed(const Link& link, const BatchReader& reader, const SegmentHeader& next) {
    if (reader.fault() != nullptr) {
      Problem(reader.next_offset(), link.path, reader.fault());
      return {};
    }
    if (next.first_seq != reader.last_seq() + 1) {
      Problem(
          reader.next_offset(), link.path,
          fmt::format("its last event is {}, and the next segment begins with {}", reader.last_seq(), next.first_seq));
    }
    const auto size = link.file->Size();
    if (!size) return std::unexpected(size.error());
    if (*size < next.previous_bytes) {
      Problem(*size, link.path, fmt::format("the file ends, and should have {} bytes", next.previous_bytes));
      return {};
    }
    SegmentHash hash;
    if (auto read = hash.Advance(*link.file, next.previous_bytes); !read) return read;
    if (hash.Digest() != next.previous_sha256) {
      Problem(0, link.path, "the file is not the one the next segment was chained to");
    }
    return {};
  }

  Result<void> CheckLast(const Link& link, const BatchReader& reader) {
    const auto tail = LookAtTail(*link.file, link.header, reader.next_offset(), reader.last_seq());
    if (!tail) return std::unexpected(tail.error());
    if (tail->declared_durable_by) {
      Problem(reader.next_offset(), link.path, fmt::format("{}, though it was durable", reader.fault()));
    } else if (tail->used_bytes > 0) {
      report_.torn_bytes = static_cast<std::int64_t>(tail->used_bytes - reader.next_offset());
    }
    return {};
  }

  Files& files_;
  const std::string folder_;
  const JournalVisitor& visit_;
  JournalReport report_;
  std::optional<Link> before_;
};

}  // namespace

Result<JournalReport> VerifyJournal(Files& files, const std::string& folder, const JournalVisitor& visit) {
  return Verifier(files, folder, visit).Run();
}

}  // namespace dlo::store
