//! HTTP/1.1 without I/O: heads, framing, fields, paths, ranges, conditions.
