// The precompiled header is attached to this object library.
