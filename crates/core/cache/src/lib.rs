//! S3-FIFO in bytes: what stays in memory and what leaves.
