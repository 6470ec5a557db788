//! Per-core counters, Prometheus text, access log writer.
