//! Sockets: listeners, one runtime per core, connections, deadlines, admission.
