#include "cli/table.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "cli/text.h"

namespace dlo::cli {
namespace {

constexpr int kGap = 2;
constexpr int kNarrowest = 8;  // a text column keeps this much, else it says nothing

}  // namespace

std::string Paint(std::string_view text, Colour colour, const Style& style) {
  if (!style.colour || colour == Colour::plain || text.empty()) return std::string(text);
  constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"};
  return kCodes[static_cast<int>(colour)] + std::string(text) + "\x1b[0m";
}

void Table::Add(std::vector<Cell> row) {
  assert(row.size() == columns_.size());
  for (Cell& cell : row) cell.text = EscapeLine(cell.text);
  rows_.push_back(std::move(row));
}

std::vector<int> Table::Widths(const Style& style) const {
  std::vector<int> widths;
  widths.reserve(columns_.size());
  for (const Column& column : columns_) widths.push_back(DisplayWidth(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i].text));
  }
  if (style.width <= 0) return widths;
  int total = std::accumulate(widths.begin(), widths.end(), kGap * (static_cast<int>(widths.size()) - 1));
  for (; total > style.width; --total) {
    std::size_t widest = widths.size();  // for its weight
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (!columns_[i].shrinks || widths[i] <= std::max(kNarrowest, DisplayWidth(columns_[i].title))) continue;
      if (widest == widths.size() || widths[i] * columns_[widest].weight > widths[widest] * columns_[i].weight)
        widest = i;
    }
    if (widest == widths.size()) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::Render(const Style& style) const {
  std::vector<int> widths = Widths(style);
  std::string out;
  // In a terminal too narrow even for the narrowest columns a line ends at the edge; it never wraps.
  auto line = [&](auto text_of, auto colour_of) {
    int used = 0;
    std::string pending;  // spaces are written only before text, so that no line ends in them
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      int room = style.width > 0 ? std::min(widths[i], style.width - used) : widths[i];
      if (room <= 0) break;
      std::string text = Shorten(text_of(i), room);
      std::string padding(static_cast<std::size_t>(std::max(0, room - DisplayWidth(text))), ' ');
      if (columns_[i].right) pending += padding;
      if (!text.empty()) {
        out += pending + Paint(text, colour_of(i), style);
        pending.clear();
      }
      if (!columns_[i].right) pending += padding;
      pending += std::string(kGap, ' ');
      used += room + kGap;
    }
    out += '\n';
  };
  line([&](std::size_t i) { return columns_[i].title; }, [](std::size_t) { return Colour::bold; });
  for (const auto& row : rows_) {
    line([&](std::size_t i) { return row[i].text; }, [&](std::size_t i) { return row[i].colour; });
  }
  return out;
}

}  // namespace dlo::cli
