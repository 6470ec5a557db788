//! Black-box tests: real processes, real sockets.
