//! The HTTP/1.1 connection loop: core/http over edge/serve.
