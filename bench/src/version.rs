//! Versions of programs, as reported by themselves.

use std::process::Command;

use anyhow::{Context, Result};

/// Runs `program` to get its version: the first word that looks like one.
pub(crate) fn of(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output()?;
    let said = [output.stdout, output.stderr].concat();
    find_version(&String::from_utf8_lossy(&said)).context("it says no version")
}

fn find_version(said: &str) -> Option<String> {
    let words = said.split([' ', '/', '\n', '(']);
    let mut words = words.map(|word| word.trim_start_matches("varnish-").trim_matches([',', ')']));
    let is_version =
        |word: &str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    words.find(|word| is_version(word)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_the_peers_say() {
        for (said, version) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.17", "2.2.5"),
            ("lighttpd/1.4.69 (ssl) - a light and fast webserver", "1.4.69"),
            (
                "HAProxy version 2.6.12-1+deb12u4 2026/01/01 - https://haproxy.org/",
                "2.6.12-1+deb12u4",
            ),
            ("varnishd (varnish-7.1.1 revision 7cee1c581b)", "7.1.1"),
            ("skep 0.1.0", "0.1.0"),
        ] {
            assert_eq!(find_version(said).as_deref(), Some(version));
        }
        assert_eq!(find_version("no version here"), None);
    }
}
