//! Health, drain, slow start and retry budget of nodes as pure state machines.
