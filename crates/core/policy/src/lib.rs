//! Dispatch policies behind one trait.
