//! Tests of the cache: behaviour by name here, comparison with a slow model in
//! `model.rs`, hit ratios in `hit_ratio.rs`.
