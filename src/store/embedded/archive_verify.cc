#include "store/embedded/archive_verify.h"

#include <fmt/format.h>

#include <span>

#include "store/embedded/archive_files.h"
#include "store/embedded/archive_manifest.h"

namespace dlo::store {
namespace {

Result<void> WriteAll(File& file, std::uint64_t offset, std::string_view bytes) {
  const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  return file.WriteAt(offset, std::span(&part, 1));
}

/// "0000000001.seg.zst" -> "0000000001.seg".
std::string Unpacked(const std::string& name) {
  return name.substr(0, name.size() - std::string_view(".zst").size());
}

Result<void> ExportFile(Files& files, const std::string& from, const std::string& to, const WrittenFile& expected) {
  auto opened = files.Open(from, OpenMode::read);
  if (!opened && opened.error().kind == ErrorKind::not_found) return ArchiveDamaged(from, "the file is missing");
  if (!opened) return std::unexpected(opened.error());
  const auto seekable = SeekableFile::Open(std::move(*opened), from);
  if (!seekable) return std::unexpected(seekable.error());
  auto out = files.Open(to, OpenMode::create_new);
  if (!out) return std::unexpected(out.error());
  Sha256Stream hash;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < (*seekable)->frames(); ++i) {
    const auto frame = (*seekable)->Frame(i);
    if (!frame) return std::unexpected(frame.error());
    hash.Add(*frame);
    if (auto done = WriteAll(**out, offset, *frame); !done) return done;
    offset += frame->size();
  }
  if (hash.Finish() != expected.original_sha256) return ArchiveDamaged(from, "it is not what the manifest says");
  return (*out)->Sync();
}

/// The files of the archive, each once.
struct Listed {
  std::string name;
  WrittenFile file;
};
std::vector<Listed> FilesOf(const std::vector<ArchiveLine>& lines) {
  std::vector<Listed> all;
  for (const ArchiveLine& line : lines) {
    if (line.part == 1) all.push_back({ArchivedName(line.segment), line.data});
    all.push_back({SidecarName(line.segment, line.part), line.sidecar});
  }
  return all;
}

/// Each segment is chained to the one before it, as far as both are here.
void CheckChain(const std::vector<ArchiveLine>& lines, const ArchiveManifest& manifest, ArchiveReport& report) {
  for (const ArchiveLine& line : lines) {
    const auto before = line.part == 1 ? manifest.Moved(line.segment - 1) : std::nullopt;
    if (!before || before->data.original_sha256 == line.Header().previous_sha256) continue;
    report.problems.push_back(
        fmt::format("{}: it is not chained to the segment before it", manifest.Path(ArchivedName(line.segment))));
  }
}

ArchiveReport ReportOf(const ArchiveManifest& manifest, const std::vector<ArchiveLine>& lines) {
  ArchiveReport report;
  report.lines = static_cast<std::int64_t>(lines.size());
  for (const ArchiveLine& line : lines) report.segments += line.part == 1 ? 1 : 0;
  report.head = manifest.Head();
  return report;
}

}  // namespace

Result<ArchiveReport> VerifyArchive(Files& files, const std::string& folder) {
  const auto manifest = ArchiveManifest::Open(files, folder);
  if (!manifest && manifest.error().kind == ErrorKind::corrupt)
    return ArchiveReport{.problems = {manifest.error().message}};
  if (!manifest) return std::unexpected(manifest.error());
  const auto lines = (*manifest)->lines();
  ArchiveReport report = ReportOf(**manifest, lines);
  Pacer pacer;
  for (const auto& [name, file] : FilesOf(lines)) {
    const auto good = CheckFile(files, (*manifest)->Path(name), file, pacer);
    if (!good && good.error().kind != ErrorKind::corrupt) return std::unexpected(good.error());
    if (!good) report.problems.push_back(good.error().message);
    ++report.files;
    report.bytes += static_cast<std::int64_t>(file.bytes);
    report.original_bytes += static_cast<std::int64_t>(file.original_bytes);
  }
  CheckChain(lines, **manifest, report);
  return report;
}

Result<ArchiveReport> ExportArchive(Files& files, const std::string& folder, const std::string& to) {
  const auto manifest = ArchiveManifest::Open(files, folder);
  if (!manifest) return std::unexpected(manifest.error());
  if (auto made = files.MakeFolders(to); !made) return std::unexpected(made.error());
  const auto there = files.List(to);
  if (!there) return std::unexpected(there.error());
  if (!there->empty()) {
    return Fail(ErrorKind::conflict, "not_empty",
                fmt::format("{} is not empty: name a folder that is, or is not there yet", to));
  }
  const auto lines = (*manifest)->lines();
  ArchiveReport report = ReportOf(**manifest, lines);
  std::string sums;
  for (const auto& [name, file] : FilesOf(lines)) {
    if (auto done = ExportFile(files, (*manifest)->Path(name), to + "/" + Unpacked(name), file); !done) {
      return std::unexpected(done.error());
    }
    sums += fmt::format("{}  {}\n", HexEncode(file.original_sha256), Unpacked(name));
    ++report.files;
    report.bytes += static_cast<std::int64_t>(file.bytes);
    report.original_bytes += static_cast<std::int64_t>(file.original_bytes);
  }
  auto out = files.Open(to + "/SHA256SUMS", OpenMode::create_new);
  if (!out) return std::unexpected(out.error());
  if (auto done = WriteAll(**out, 0, sums); !done) return std::unexpected(done.error());
  if (auto done = (*out)->Sync(); !done) return std::unexpected(done.error());
  if (auto done = files.SyncFolder(to); !done) return std::unexpected(done.error());
  return report;
}

}  // namespace dlo::store
