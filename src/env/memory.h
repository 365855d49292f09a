// How much memory this process holds, as the kernel counts it.
#pragma once

#include <cstdint>
#include <optional>

namespace dlo {

/// Bytes in physical memory (VmRSS); nullopt where there is no /proc.
[[nodiscard]] std::optional<std::uint64_t> ResidentBytes();
/// Gives freed memory that the allocator keeps for later back to the system. Takes milliseconds: for when it is short.
void ReturnFreeMemory();

}  // namespace dlo
