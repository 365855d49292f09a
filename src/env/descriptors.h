// How many files and connections the process may have open at once.
#pragma once

#include <cstddef>

namespace dlo {

/// Raises the process's own limit to `wanted` as far as the system lets it, and returns what there is. Never lowers it.
std::size_t RaiseDescriptorLimit(std::size_t wanted);

}  // namespace dlo
