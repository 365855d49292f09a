# What the build and the tests need, by Debian's and Ubuntu's names. Sourced by ./run and ./test.
build_packages=(g++ cmake ninja-build ccache pkg-config libssl-dev libcurl4-openssl-dev libfmt-dev
  libspdlog-dev libcli11-dev libtomlplusplus-dev libjemalloc-dev libzstd-dev libhowardhinnant-date-dev tzdata
  ca-certificates)
test_packages=(libgtest-dev libgmock-dev python3 python3-venv curl procps openssl nginx haproxy prometheus-alertmanager
  clang-format-19)

# Debian 12's default Boost is older than what the edge needs; later systems ship a newer default.
boost_packages() {
  if apt-cache show libboost1.81-dev >/dev/null 2>&1; then
    echo libboost1.81-dev libboost-json1.81-dev
  else
    echo libboost-dev libboost-json-dev
  fi
}

# install_missing PACKAGE...: apt-get install of what is not there yet; says what it does.
install_missing() {
  local missing=() p
  for p in "$@"; do dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  echo "installing: ${missing[*]}"
  # No package may start a service: the tests run nginx and haproxy in the foreground, on ports of their own.
  $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 SYSTEMD_OFFLINE=1 apt-get install -y -q --no-install-recommends "${missing[@]}" >/tmp/dlo-apt.$$ 2>&1 \
    || { cat /tmp/dlo-apt.$$; echo "apt-get could not install them; see above" >&2; return 1; }
  rm -f /tmp/dlo-apt.$$
  for p in "${missing[@]}"; do
    case $p in nginx | haproxy | prometheus-alertmanager) [ ! -d /run/systemd/system ] || $sudo systemctl -q disable "$p" ;; esac  # nor at the next boot
  done
}

apt_lists() {
  local sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  apt-cache show libfmt-dev >/dev/null 2>&1 && apt-cache show cmake >/dev/null 2>&1 || $sudo apt-get update -q >/dev/null
}

# build_preset PRESET [TARGET...]
build_preset() {
  local preset=$1; shift
  export CCACHE_DIR="${CCACHE_DIR:-$PWD/build/ccache}"
  cmake --preset "$preset" >"build/cmake-$preset.log" 2>&1 || { cat "build/cmake-$preset.log"; return 1; }
  cmake --build "build/$preset" --target "${@:-all}"
}
