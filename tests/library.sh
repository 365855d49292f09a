#!/usr/bin/env bash
# library.sh BUILD_FOLDER: installs what is built there, builds examples/embedded against it, runs that and compares.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/dlo" >"$work/log" || { cat "$work/log"; exit 1; }
cmake -S "$source/examples/embedded" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/dlo" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/build" >"$work/log" || { cat "$work/log"; exit 1; }
cd "$work"
build/embedded >got
diff - got <<TEXT
event 1 stored
event 2 stored
event 1 again
event 2 is dead: unknown_plan, no such plan: annual
event 2 is replayed
TEXT
lines=$(wc -l <"$source/examples/embedded/main.cc")
[ "$lines" -lt 60 ] || { echo "the example has $lines lines; fewer than 60 are promised"; exit 1; }
