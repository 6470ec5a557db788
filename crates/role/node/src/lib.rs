//! The web server: sites, files, the memory cache.
