#include "store/embedded/archived_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "store/embedded/sidecar.h"

namespace dlo::store {
namespace {

/// Of one part, in the file's order; empty: it has nothing of this event.
Result<std::vector<boost::json::object>> RecordsIn(Files& files, const ArchiveManifest& manifest,
                                                   const ArchiveLine& line, EventId id) {
  const std::string path = manifest.Path(SidecarName(line.segment, line.part));
  auto file = files.Open(path, OpenMode::read);
  if (!file && file.error().kind == ErrorKind::not_found) {
    return ArchiveMissing(path);
  }
  if (!file) return std::unexpected(file.error());
  const auto seekable = SeekableFile::Open(std::move(*file), path);
  if (!seekable) return std::unexpected(seekable.error());
  return SidecarRecords(**seekable, path, id);
}

std::unexpected<Error> NoSuchEvent(EventId id) {
  return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", id));
}

}  // namespace

std::optional<ArchiveLine> ArchivedWith(const ArchiveManifest& manifest, EventId id) {
  return manifest.WithEvent(id);
}

Result<std::vector<ArchivedSegment>> ListArchive(const ArchiveManifest& manifest, std::int64_t after, int limit) {
  std::map<std::int64_t, ArchivedSegment> segments;
  for (const ArchiveLine& line : manifest.lines()) {
    if (line.segment <= after) continue;
    ArchivedSegment& s = segments[line.segment];
    ++s.parts;
    s.pruned += line.pruned;
    s.bytes += static_cast<std::int64_t>(line.sidecar.bytes);
    if (line.part != 1) continue;
    s.segment = line.segment;
    s.first = static_cast<EventId>(line.Header().first_seq);
    s.last = line.last_seq;
    s.events = line.events;
    s.letters = line.letters;
    s.bytes += static_cast<std::int64_t>(line.data.bytes);
    s.original_bytes = static_cast<std::int64_t>(line.data.original_bytes);
    s.moved_at = line.at;
    s.file = ArchivedName(line.segment);
    s.sha256 = HexEncode(line.data.sha256);
    s.original_sha256 = HexEncode(line.data.original_sha256);
  }
  std::vector<ArchivedSegment> list;
  for (auto& [number, segment] : segments) {
    if (std::ssize(list) == limit) break;
    list.push_back(std::move(segment));
  }
  return list;
}

Result<LetterDetail> ShowArchived(Files& files, const ArchiveManifest& manifest, EventId id, const Receipt* receipt) {
  const auto moved = ArchivedWith(manifest, id);
  if (!moved) return NoSuchEvent(id);
  auto parts = manifest.Parts(moved->segment);
  for (auto line = parts.rbegin(); line != parts.rend(); ++line) {
    const auto records = RecordsIn(files, manifest, *line, id);
    if (!records) return std::unexpected(records.error());
    if (records->empty()) continue;
    LetterDetail detail = DetailOf(*records, receipt);
    detail.pruned = true;
    return detail;
  }
  return NoSuchEvent(id);
}

Result<std::vector<std::string>> RecordsOf(Files& files, const ArchiveManifest& manifest, EventId id) {
  const auto moved = ArchivedWith(manifest, id);
  if (!moved) {
    return Fail(ErrorKind::not_found, "not_in_archive",
                fmt::format("The archive has no event {}; `dlo show {}` looks everywhere.", id, id));
  }
  std::vector<std::string> all;
  for (const ArchiveLine& line : manifest.Parts(moved->segment)) {
    const auto records = RecordsIn(files, manifest, line, id);
    if (!records) return std::unexpected(records.error());
    for (boost::json::object record : *records) {
      record["part"] = line.part;
      all.push_back(boost::json::serialize(record));
    }
  }
  if (all.empty()) return NoSuchEvent(id);
  return all;
}

}  // namespace dlo::store
