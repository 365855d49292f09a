#include "store/embedded/journal_verify.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "store/embedded/archive_manifest.h"
#include "store/embedded/journal_segment.h"
#include "store/embedded/seekable.h"

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
  Verifier(Files& files, const std::string& folder, const std::string& archive, const JournalVisitor& visit)
      : files_(files), folder_(folder), archive_(archive), visit_(visit) {}

  Result<JournalReport> Run() {
    const auto numbers = Numbers();
    if (!numbers) return std::unexpected(numbers.error());
    std::int64_t expected = 1;
    for (const std::int64_t number : *numbers) {
      if (number != expected) {
        report_.problems.push_back(
            expected == number - 1
                ? fmt::format("{}/{} is missing", folder_, SegmentName(expected))
                : fmt::format("{0}/{1} to {2} are missing", folder_, SegmentName(expected), SegmentName(number - 1)));
        if (auto done = CloseSegment(nullptr); !done) return std::unexpected(done.error());
        before_.reset();
      }
      expected = number + 1;
      if (auto opened = OpenSegment(number); !opened) return std::unexpected(opened.error());
    }
    if (auto done = CloseSegment(nullptr); !done) return std::unexpected(done.error());
    return std::move(report_);
  }

 private:
  /// Of all segments, wherever they are.
  Result<std::set<std::int64_t>> Numbers() {
    std::set<std::int64_t> numbers;
    const auto names = files_.List(folder_);
    if (!names) return std::unexpected(names.error());
    for (const std::string& name : *names) {
      if (const auto plain = SegmentNumber(name)) numbers.insert(*plain);
      if (const auto compressed = CompressedNumber(name)) numbers.insert(*compressed);
    }
    if (archive_.empty()) return numbers;
    const auto archived = files_.List(archive_);
    if (!archived) return std::unexpected(archived.error());
    for (const std::string& name : *archived) {
      if (const auto number = CompressedNumber(name)) numbers.insert(*number);
    }
    return numbers;
  }

  /// A running server moves a segment from each of these places to the next.
  Result<std::unique_ptr<File>> OpenWhereItIs(Link& link, std::int64_t number) {
    auto file = files_.Open(link.path, OpenMode::read);
    if (file || file.error().kind != ErrorKind::not_found) return file;
    for (const std::string& folder : {folder_, archive_}) {
      if (folder.empty()) continue;
      const std::string path = folder + "/" + CompressedName(number);
      file = files_.Open(path, OpenMode::read);
      if (!file && file.error().kind == ErrorKind::not_found) continue;
      if (!file) return file;
      link.path = path;
      auto seekable = SeekableFile::Open(std::move(*file), path);
      if (!seekable) return std::unexpected(seekable.error());
      return std::unique_ptr<File>(std::move(*seekable));
    }
    return file;
  }

  /// Damage of a compressed file shows itself while it is read; only the disk's own errors end the work.
  Result<void> Note(const Error& error) {
    if (error.kind != ErrorKind::corrupt) return std::unexpected(error);
    report_.problems.push_back(error.message);
    return {};
  }

  void Problem(std::uint64_t offset, const std::string& path, std::string_view what) {
    report_.problems.push_back(fmt::format("{} at offset {}: {}", path, offset, what));
  }

  Result<void> OpenSegment(std::int64_t number) {
    ++report_.segments;
    Link link{{}, nullptr, folder_ + "/" + SegmentName(number)};
    auto file = OpenWhereItIs(link, number);
    const auto header = file ? ReadSegmentHeader(**file, link.path, number)
                             : Result<std::optional<SegmentHeader>>(std::unexpected(file.error()));
    if (!header || !*header) {
      if (!header && header.error().kind == ErrorKind::unavailable) return std::unexpected(header.error());
      report_.problems.push_back(header ? fmt::format("{} has no header, all zeros", link.path)
                                        : header.error().message);
      auto done = CloseSegment(nullptr);
      before_.reset();
      return done;
    }
    link.file = std::move(*file);
    link.header = **header;
    report_.links[number] = link.header.previous_sha256;
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
      if (!more) return Note(more.error());
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
    if (auto read = hash.Advance(*link.file, next.previous_bytes); !read) return Note(read.error());
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
  const std::string folder_, archive_;
  const JournalVisitor& visit_;
  JournalReport report_;
  std::optional<Link> before_;
};

}  // namespace

Result<JournalReport> VerifyJournal(Files& files, const std::string& folder, const std::string& archive,
                                    const JournalVisitor& visit) {
  return Verifier(files, folder, archive, visit).Run();
}

}  // namespace dlo::store
