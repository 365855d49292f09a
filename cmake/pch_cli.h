#include "pch.h"

#include <CLI/CLI.hpp>
