//! The settings table and what is made of it: parser, messages, reference.
