// How much to ask of each source: splits a target's free places fairly among the sources that have work for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace dlo::dispatch {

struct Share {
  std::size_t source = 0;  // index
  int most = 0;            // of this source, whatever is free
  int share = 0;           // the result
};

/// Even shares of `free`, none above its `most`; what one cannot take goes to the others. Places that do not split
/// evenly go to the first ones from `start` on, so a caller that moves `start` on is fair over time.
inline void SplitFairly(int free, std::size_t start, std::span<Share> shares) {
  for (Share& s : shares) s.share = 0;
  std::size_t hungry = 0;
  do {
    hungry = static_cast<std::size_t>(std::ranges::count_if(shares, [](const Share& s) { return s.share < s.most; }));
    if (hungry == 0) return;
    const int each = std::max(1, free / static_cast<int>(hungry));
    for (std::size_t i = 0; i < shares.size() && free > 0; ++i) {
      Share& s = shares[(start + i) % shares.size()];
      const int given = std::min({each, s.most - s.share, free});
      s.share += given;
      free -= given;
    }
  } while (free > 0);
}

}  // namespace dlo::dispatch
