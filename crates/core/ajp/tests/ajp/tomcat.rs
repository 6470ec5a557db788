//! Tomcat.
