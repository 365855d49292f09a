#!/usr/bin/env bash
# A folder of src/ includes only folders that stand above it in this list (and itself).
set -u
cd "$(dirname "$0")/.."
order=(base env model store store/embedded intake dispatch deadletter observe server cli app)
bad=0
rank() { local i; for i in "${!order[@]}"; do [ "${order[$i]}" = "$1" ] && { echo "$i"; return; }; done; echo -1; }
while IFS=: read -r file _ line; do
  folder=${file#src/}; folder=${folder%/*}
  included=$(sed -E 's/.*"([^"]+)".*/\1/' <<<"$line"); target=${included%/*}
  [ "$target" = dlo ] && continue
  from=$(rank "$folder"); to=$(rank "$target")
  if [ "$from" = -1 ]; then echo "$file: folder $folder is not in the order of layers"; bad=1; fi
  if [ "$to" = -1 ]; then echo "$file: includes \"$included\" by a path that names no layer"; bad=1; continue; fi
  if [ "$to" -gt "$from" ]; then echo "$file: $folder includes $included, which is below it"; bad=1; fi
done < <(grep -rnE '^#include "' src --include='*.h' --include='*.cc')
# The public headers stand alone.
if grep -rnE '^#include "' include | grep -v '"dlo/'; then echo "public headers include private ones"; bad=1; fi
# Side effects come through env/: no ambient clock, chance, sleep or environment elsewhere.
if grep -rnE '(system_clock|steady_clock)::now|random_device|sleep_for|[^a-z_]getenv\(' src --include='*.cc' --include='*.h' | grep -v '^src/env/\|^src/app/'; then
  echo "ambient clock, chance, sleep or environment outside env/ and app/"; bad=1
fi
exit $bad
