//! The management API.
