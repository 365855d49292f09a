// Tables that fit the terminal: columns are measured, and the widest text columns give way first.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dlo::cli {

enum class Colour : unsigned char { plain, bold, dim, red, green, yellow };

struct Style {
  int width = 0;  // columns of the terminal; 0 = unlimited (a pipe)
  bool colour = false;
};

/// The escape codes around `text`, or `text` itself without colour.
[[nodiscard]] std::string Paint(std::string_view text, Colour colour, const Style& style);

struct Column {
  std::string title;
  bool right = false;    // numbers
  bool shrinks = false;  // text that may be shortened
  int weight = 1;        // where room is short, a column of weight 2 keeps twice the width of one of weight 1
};

struct Cell {
  std::string text;  // as it came; the table escapes it
  Colour colour = Colour::plain;
  Cell(std::string t, Colour c = Colour::plain) : text(std::move(t)), colour(c) {}
  Cell(const char* t) : text(t) {}
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell per column.
  void Add(std::vector<Cell> row);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  /// Title line and rows, each ended by a newline; two spaces between columns.
  [[nodiscard]] std::string Render(const Style& style) const;

 private:
  [[nodiscard]] std::vector<int> Widths(const Style& style) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace dlo::cli
