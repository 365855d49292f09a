# SQLite, compiled into the program: the target SQLite::SQLite3.
#
# Debian 12 ships 3.40.1, which has the WAL-reset race (fixed in 3.51.3), and builds it for everybody: with hooks for
# sessions, without lookaside memory, zeroing what it frees, every inner call through the PLT. The index thread spends
# most of its time in SQLite and is a third slower with that build (docs/performance.md).
#
# The amalgamation is the one that the crate libsqlite3-sys carries, unchanged from sqlite.org. It is fetched once, and
# its digest is checked. -DDLO_SYSTEM_SQLITE=ON takes the system's library instead.
option(DLO_SYSTEM_SQLITE "Use the system's SQLite" OFF)

if(DLO_SYSTEM_SQLITE)
  find_package(SQLite3 REQUIRED)
  return()
endif()

set(crate libsqlite3-sys-0.38.2)  # SQLite 3.53.2
set(url https://static.crates.io/crates/libsqlite3-sys/${crate}.crate)
set(sha256 f1d20bef17f513b9b3004532233187769cd072d790971f4e4da0e346eb6401e8)
set(folder ${CMAKE_SOURCE_DIR}/build/deps)  # one for all presets
set(archive ${folder}/${crate}.crate)

file(MAKE_DIRECTORY ${folder})
file(LOCK ${folder} DIRECTORY GUARD FILE)
foreach(try RANGE 1 5)
  if(EXISTS ${archive})
    file(SHA256 ${archive} got)
    if(got STREQUAL sha256)
      break()
    endif()
  endif()
  if(try EQUAL 5)
    message(FATAL_ERROR "SQLite's source could not be fetched (${status}). Put ${url} at ${archive}, or configure with "
                        "-DDLO_SYSTEM_SQLITE=ON to use the system's SQLite.")
  endif()
  file(DOWNLOAD ${url} ${archive} STATUS status TLS_VERIFY ON INACTIVITY_TIMEOUT 30)
endforeach()
if(NOT EXISTS ${folder}/${crate}/sqlite3/sqlite3.c)
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder} PATTERNS */sqlite3/*)
endif()

add_library(dlo_sqlite STATIC ${folder}/${crate}/sqlite3/sqlite3.c)
target_include_directories(dlo_sqlite SYSTEM PUBLIC $<BUILD_INTERFACE:${folder}/${crate}/sqlite3>)
# Hidden, so that a program with another SQLite in a shared library of its own keeps that one.
target_compile_options(dlo_sqlite PRIVATE -O2 -g0 -w -fvisibility=hidden)
# A connection is used by one thread at a time; nobody reads memory statistics; double quotes are for names.
target_compile_definitions(dlo_sqlite PRIVATE SQLITE_API= SQLITE_THREADSAFE=2 SQLITE_DEFAULT_MEMSTATUS=0
  SQLITE_DQS=0 SQLITE_LIKE_DOESNT_MATCH_BLOBS SQLITE_USE_ALLOCA SQLITE_OMIT_DEPRECATED SQLITE_OMIT_LOAD_EXTENSION
  SQLITE_OMIT_SHARED_CACHE SQLITE_ENABLE_DBSTAT_VTAB)
target_link_libraries(dlo_sqlite PRIVATE Threads::Threads m)
add_library(SQLite::SQLite3 ALIAS dlo_sqlite)
