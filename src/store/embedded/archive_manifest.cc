#include "store/embedded/archive_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "base/log.h"
#include "base/time_text.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::string_view kSum = ",\"sum\":\"";

json::object View(const WrittenFile& file, const std::string& name) {
  return {{"file", name},
          {"bytes", file.bytes},
          {"sha256", HexEncode(file.sha256)},
          {"original_bytes", file.original_bytes},
          {"original_sha256", HexEncode(file.original_sha256)}};
}

/// Without the digest of itself and the closing brace.
std::string Text(const ArchiveLine& line) {
  std::string text = json::serialize(json::object{{"line", line.line},
                                                  {"at", FormatTime(line.at)},
                                                  {"segment", line.segment},
                                                  {"part", line.part},
                                                  {"header", HexEncode(line.header)},
                                                  {"last_seq", line.last_seq},
                                                  {"data", View(line.data, ArchivedName(line.segment))},
                                                  {"sidecar", View(line.sidecar, SidecarName(line.segment, line.part))},
                                                  {"events", line.events},
                                                  {"letters", line.letters},
                                                  {"pruned", line.pruned},
                                                  {"previous", HexEncode(line.previous)}});
  text.pop_back();
  return text;
}

std::string WithSum(const std::string& text) {
  return fmt::format("{}{}{}\"}}", text, kSum, HexEncode(Sha256(text)));
}

std::optional<Sha256Digest> Digest(const json::value& hex) {
  const auto bytes = HexDecode(std::string_view(hex.as_string()));
  Sha256Digest digest{};
  if (!bytes || bytes->size() != digest.size()) return std::nullopt;
  std::ranges::transform(*bytes, digest.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return digest;
}

bool ReadFile(const json::value& value, WrittenFile& file) {
  const json::object& object = value.as_object();
  file.bytes = object.at("bytes").to_number<std::uint64_t>();
  file.original_bytes = object.at("original_bytes").to_number<std::uint64_t>();
  const auto sha256 = Digest(object.at("sha256")), original = Digest(object.at("original_sha256"));
  if (sha256) file.sha256 = *sha256;
  if (original) file.original_sha256 = *original;
  return sha256.has_value() && original.has_value();
}

std::optional<ArchiveLine> Parse(std::string_view text) {
  const std::size_t sum = text.rfind(kSum);
  if (sum == std::string_view::npos || WithSum(std::string(text.substr(0, sum))) != text) return std::nullopt;
  ArchiveLine line;
  try {  // boost::json's own words for a field that is not there
    const json::value value = json::parse(text);
    const json::object& object = value.as_object();
    const auto number = [&](const char* name) { return object.at(name).to_number<std::int64_t>(); };
    line.line = number("line");
    line.segment = number("segment");
    line.part = number("part");
    line.last_seq = number("last_seq");
    line.events = number("events");
    line.letters = number("letters");
    line.pruned = number("pruned");
    const auto at = ParseTime(std::string_view(object.at("at").as_string()));
    const auto header = HexDecode(std::string_view(object.at("header").as_string()));
    const auto previous = Digest(object.at("previous"));
    if (!at || !header || header->size() != kSegmentHeaderBytes || !DecodeSegmentHeader(*header) || !previous ||
        !ReadFile(object.at("data"), line.data) || !ReadFile(object.at("sidecar"), line.sidecar)) {
      return std::nullopt;
    }
    line.at = *at;
    line.header = *header;
    line.previous = *previous;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return line;
}

}  // namespace

SegmentHeader ArchiveLine::Header() const {
  return DecodeSegmentHeader(header).value_or(SegmentHeader{});
}

std::string ArchivedName(std::int64_t segment) {
  return fmt::format("{:010}.seg.zst", segment);
}

std::string SidecarName(std::int64_t segment, std::int64_t part) {
  return fmt::format("{:010}.{}.ndjson.zst", segment, part);
}

Result<std::unique_ptr<ArchiveManifest>> ArchiveManifest::Open(Files& files, std::string folder) {
  std::unique_ptr<ArchiveManifest> manifest(new ArchiveManifest(files, std::move(folder)));
  if (auto read = manifest->Read(); !read) return std::unexpected(read.error());
  return manifest;
}

Result<void> ArchiveManifest::Read() {
  const std::string path = Path(kManifestName);
  if (!files_.Exists(path)) return {};
  auto file = files_.Open(path, OpenMode::read);
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->Size();
  if (!size) return std::unexpected(size.error());
  if (*size > kMostBytes) return ArchiveDamaged(path, "the manifest is larger than any that was written");
  std::string text(*size, '\0');
  const auto got = (*file)->ReadAt(0, text);
  if (!got) return std::unexpected(got.error());
  text.resize(*got);
  while (end_ < text.size()) {
    const std::size_t newline = text.find('\n', end_);
    const std::string_view rest = std::string_view(text).substr(end_);
    const std::string_view whole = rest.substr(0, newline == std::string::npos ? rest.size() : newline - end_);
    const auto line = newline == std::string::npos ? std::nullopt : Parse(whole);
    if (!line) {
      // Bytes behind it that are whole lines were written later, and only after this one was durable.
      for (std::size_t at = newline; at != std::string::npos && at + 1 < text.size(); at = text.find('\n', at + 1)) {
        const std::size_t end = text.find('\n', at + 1);
        if (end != std::string::npos && Parse(std::string_view(text).substr(at + 1, end - at - 1))) {
          return ArchiveDamaged(path, fmt::format("line {} is not as it was written", lines_.size() + 1));
        }
      }
      torn_bytes_ = text.size() - end_;
      log::Warn("archive_torn_line_ignored", {{"file", path}, {"offset", end_}, {"bytes", torn_bytes_}});
      return {};
    }
    const Sha256Digest before = lines_.empty() ? Sha256Digest{} : Sha256(last_text_);
    if (line->line != static_cast<std::int64_t>(lines_.size()) + 1 || line->previous != before) {
      return ArchiveDamaged(path, fmt::format("line {} does not follow the one before it", lines_.size() + 1));
    }
    last_text_ = whole;
    by_segment_[line->segment].push_back(lines_.size());
    lines_.push_back(*line);
    end_ = newline + 1;
  }
  return {};
}

Result<void> ArchiveManifest::WriteLine(const std::string& text, bool cut_torn) {
  const std::string path = Path(kManifestName);
  const bool there = files_.Exists(path);
  auto file = files_.Open(path, there ? OpenMode::read_write : OpenMode::create_new);
  if (!file) return std::unexpected(file.error());
  // What a torn write left goes first: no mix of both may ever be read.
  if (cut_torn) {
    if (auto cut = (*file)->Truncate(end_); !cut) return cut;
  }
  std::string bytes = text + "\n";
  const iovec part{bytes.data(), bytes.size()};
  if (auto done = (*file)->WriteAt(end_, std::span(&part, 1)); !done) return done;
  if (auto done = (*file)->Sync(); !done) return done;
  return files_.SyncFolder(folder_);
}

Result<void> ArchiveManifest::Append(ArchiveLine line) {
  const std::lock_guard lock(mutex_);
  line.line = static_cast<std::int64_t>(lines_.size()) + 1;
  line.previous = lines_.empty() ? Sha256Digest{} : Sha256(last_text_);
  std::string text = WithSum(Text(line));
  if (auto done = WriteLine(text, true); !done) return done;
  end_ += text.size() + 1;
  last_text_ = std::move(text);
  by_segment_[line.segment].push_back(lines_.size());
  lines_.push_back(std::move(line));
  return {};
}

Result<void> ArchiveManifest::Settle() {
  const std::lock_guard lock(mutex_);
  if (lines_.empty()) return {};
  end_ -= last_text_.size() + 1;
  auto done = WriteLine(last_text_, false);
  end_ += last_text_.size() + 1;
  return done;
}

std::vector<ArchiveLine> ArchiveManifest::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

std::string ArchiveManifest::Head() const {
  const std::lock_guard lock(mutex_);
  return lines_.empty() ? std::string() : HexEncode(Sha256(last_text_));
}

ArchiveLine ArchiveManifest::Line(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return lines_.at(number - 1);
}

std::size_t ArchiveManifest::size() const {
  const std::lock_guard lock(mutex_);
  return lines_.size();
}

std::optional<ArchiveLine> ArchiveManifest::Moved(std::int64_t segment) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_segment_.find(segment);
  if (found == by_segment_.end()) return std::nullopt;
  return lines_[found->second.front()];
}

std::optional<ArchiveLine> ArchiveManifest::WithEvent(std::int64_t seq) const {
  const std::lock_guard lock(mutex_);
  // Segments are in receipt order, so this is a search by their last event.
  const auto found = std::ranges::partition_point(
      by_segment_, [&](const auto& segment) { return lines_[segment.second.front()].last_seq < seq; });
  if (found == by_segment_.end()) return std::nullopt;
  const ArchiveLine& line = lines_[found->second.front()];
  if (static_cast<std::int64_t>(line.Header().first_seq) > seq) return std::nullopt;
  return line;
}

std::vector<ArchiveLine> ArchiveManifest::Parts(std::int64_t segment) const {
  const std::lock_guard lock(mutex_);
  std::vector<ArchiveLine> parts;
  if (const auto found = by_segment_.find(segment); found != by_segment_.end()) {
    for (const std::size_t i : found->second) parts.push_back(lines_[i]);
  }
  return parts;
}

}  // namespace dlo::store
