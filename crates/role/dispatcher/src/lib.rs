//! The dispatcher: proxy and redirect modes.
