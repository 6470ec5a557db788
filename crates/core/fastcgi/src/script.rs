//! Selects the script, and the rest of the path that it receives: on bytes of the decoded path,
//! without regular expressions (CVE-2019-11043: `^(.+?\.php)(/.*)$` does not match a line break).

use crate::FcgiRequestError;

/// How SCRIPT_NAME and PATH_INFO are derived from a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptRule<'a> {
    /// A script ends with `extension` (such as `.php`), followed by the end of the path or a slash;
    /// the first match applies. If a path without a match ends with a slash, `index` is the script.
    Extension {
        extension: &'a [u8],
        /// Such as `index.php`; if empty, a folder has no script.
        index: &'a [u8],
    },
    /// A script that ends with `extension`, as above; all other paths are mapped to `front`, with a
    /// leading slash, without PATH_INFO.
    FrontController { extension: &'a [u8], front: &'a [u8] },
    /// All paths are mapped to this script, with a leading slash: a front controller, which uses
    /// REQUEST_URI. There is no PATH_INFO.
    Always(&'a [u8]),
    /// An application that handles all paths below `mount`, without a trailing slash: the rest is
    /// PATH_INFO.
    Below {
        /// Empty for the root.
        mount: &'a [u8],
    },
}

/// A script, and the rest of the path, both decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// SCRIPT_NAME: begins with a slash unless it is empty.
    pub name: Vec<u8>,
    /// PATH_INFO: begins with a slash unless it is empty.
    pub info: Vec<u8>,
}

impl ScriptRule<'_> {
    /// Splits a percent-encoded path.
    ///
    /// # Errors
    /// [`FcgiRequestError::Path`], [`FcgiRequestError::NoScript`].
    pub fn split(&self, path: &[u8]) -> Result<Script, FcgiRequestError> {
        let path = decode(path)?;
        let script = |name: &[u8], info: &[u8]| Script { name: name.to_vec(), info: info.to_vec() };
        match *self {
            ScriptRule::Always(name) => Ok(script(name, b"")),
            ScriptRule::FrontController { extension, front } => {
                let end = end_of(&path, extension);
                Ok(end.map_or_else(|| script(front, b""), |end| script(&path[..end], &path[end..])))
            }
            ScriptRule::Below { mount } => {
                let info = path.strip_prefix(mount).ok_or(FcgiRequestError::NoScript)?;
                let is_below = info.is_empty() || info.starts_with(b"/");
                is_below.then(|| script(mount, info)).ok_or(FcgiRequestError::NoScript)
            }
            ScriptRule::Extension { extension, index } => match end_of(&path, extension) {
                Some(end) => Ok(script(&path[..end], &path[end..])),
                None if path.ends_with(b"/") && !index.is_empty() => {
                    Ok(script(&[&path, index].concat(), b""))
                }
                None => Err(FcgiRequestError::NoScript),
            },
        }
    }
}

/// The offset after the first `extension` that ends a segment.
fn end_of(path: &[u8], extension: &[u8]) -> Option<usize> {
    let ends = (0..path.len()).filter_map(|at| {
        let behind = path[at..].strip_prefix(extension)?;
        let has_name = at > 0 && path[at - 1] != b'/';
        (has_name && (behind.is_empty() || behind[0] == b'/')).then_some(path.len() - behind.len())
    });
    if extension.is_empty() { None } else { ends.into_iter().next() }
}

/// Percent-decodes a path, and refuses anything ambiguous.
fn decode(path: &[u8]) -> Result<Vec<u8>, FcgiRequestError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        decoded.push(
            match (*byte, behind) {
                (b'%', [high, low, behind @ ..]) => {
                    rest = behind;
                    hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low)
                }
                (b'%', _) => None,
                (byte, _) => Some(byte),
            }
            .ok_or(FcgiRequestError::Path)?,
        );
    }
    let is_dots = |segment: &[u8]| segment == b"." || segment == b"..";
    let is_clear = decoded.starts_with(b"/")
        && !decoded.iter().any(u8::is_ascii_control)
        && !decoded.split(|byte| *byte == b'/').any(is_dots);
    is_clear.then_some(decoded).ok_or(FcgiRequestError::Path)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHP: ScriptRule<'_> = ScriptRule::Extension { extension: b".php", index: b"index.php" };

    fn split(rule: ScriptRule<'_>, path: &str) -> Result<(String, String), FcgiRequestError> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        rule.split(path.as_bytes()).map(|it| (text(&it.name), text(&it.info)))
    }

    #[test]
    fn a_front_controller_has_what_names_no_script() {
        let rule = ScriptRule::FrontController { extension: b".php", front: b"/index.php" };
        for (path, name, info) in [
            ("/", "/index.php", ""),
            ("/2026/a-post/", "/index.php", ""),
            ("/wp-login.php", "/wp-login.php", ""),
            ("/admin/index.php/x", "/admin/index.php", "/x"),
        ] {
            assert_eq!(split(rule, path), Ok((name.to_owned(), info.to_owned())), "{path}");
        }
        assert_eq!(split(rule, "/a%0A"), Err(FcgiRequestError::Path));
    }

    #[test]
    fn the_first_extension_ends_the_script() {
        for (path, name, info) in [
            ("/a.php", "/a.php", ""),
            ("/a.php/", "/a.php", "/"),
            ("/a.php/b/c.php", "/a.php", "/b/c.php"),
            ("/a.phpx/b.php", "/a.phpx/b.php", ""),
            ("/a.php.jpg/b.php/c", "/a.php.jpg/b.php", "/c"),
            ("/a%2Ephp/x", "/a.php", "/x"),
            ("/", "/index.php", ""),
            ("/d/", "/d/index.php", ""),
            ("/a%20b.php/%C3%A9", "/a b.php", "/\\xc3\\xa9"),
        ] {
            assert_eq!(split(PHP, path), Ok((name.to_owned(), info.to_owned())), "{path}");
        }
        for path in ["/a", "/a.html", "/a.PHP", "/.php", "/d/.php/x"] {
            assert_eq!(split(PHP, path), Err(FcgiRequestError::NoScript), "{path}");
        }
        let without = ScriptRule::Extension { extension: b".php", index: b"" };
        assert_eq!(split(without, "/d/"), Err(FcgiRequestError::NoScript));
    }

    #[test]
    fn paths_that_could_be_read_in_two_ways_run_nothing() {
        for path in [
            "/a.php/%0A", // CVE-2019-11043
            "/a.php/%0d%0a",
            "/a.php%00.jpg",
            "/%7f.php",
            "/../a.php",
            "/x/%2e%2e/a.php",
            "/x%2f..%2fa.php",
            "/./a.php",
            "/a.php%",
            "/a.php%2",
            "/a.php%zz",
            "a.php",
            "",
            "*",
        ] {
            for rule in [PHP, ScriptRule::Always(b"/index.php"), ScriptRule::Below { mount: b"" }] {
                assert_eq!(split(rule, path), Err(FcgiRequestError::Path), "{path}");
            }
        }
    }

    #[test]
    fn front_controllers_and_applications_have_all_paths() {
        let pair = |name: &str, info: &str| Ok((name.to_owned(), info.to_owned()));
        let always = ScriptRule::Always(b"/index.php");
        assert_eq!(split(always, "/blog/1"), pair("/index.php", ""));
        let root = ScriptRule::Below { mount: b"" };
        assert_eq!(split(root, "/blog/1"), pair("", "/blog/1"));
        let below = ScriptRule::Below { mount: b"/app" };
        assert_eq!(split(below, "/app/x"), pair("/app", "/x"));
        assert_eq!(split(below, "/app"), pair("/app", ""));
        assert_eq!(split(below, "/apple"), Err(FcgiRequestError::NoScript));
    }
}
