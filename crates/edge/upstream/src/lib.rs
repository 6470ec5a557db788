//! Connections to nodes: dialling, pooling, reading with deadlines.
