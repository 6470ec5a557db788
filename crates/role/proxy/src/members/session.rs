//! Sessions: requests of one client that must be sent to the same member, because its memory contains their
//! state.
//!
//! The member of a session is identified by the requests themselves, so that any process of a cluster finds
//! it without a table and without the other processes. A member that drains keeps its sessions; the sessions
//! of a removed member move to another.

use std::fmt;

use skep_http::{RequestHead, cookie};
use skep_units::stable_hash;
use skep_wire::seal::Key;
use smallvec::SmallVec;

use crate::limits::SESSION_NAMES_MAX;

/// How a request identifies the member of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sticky {
    /// By a name that the application appends to the id of a session, as servlet engines and mod_jk do
    /// (`jvmRoute`): `JSESSIONID=ID.NAME`, or `;jsessionid=ID.NAME` in the path. The name is that of the
    /// member.
    Route {
        cookie: String,
        /// Name of the path parameter; empty: there is none.
        parameter: String,
        separator: u8,
    },
    /// By a cookie that is inserted here, and removed from requests to members.
    Cookie(InsertedCookie),
    /// By the hash of a cookie's value.
    CookieHash(String),
    /// By the hash of a field's value.
    FieldHash(String),
}

/// A cookie that names the member of a session.
#[derive(Clone)]
pub struct InsertedCookie {
    pub name: String,
    /// The attributes after its value in `Set-Cookie`, such as `; Path=/; HttpOnly`.
    pub attributes: String,
    /// Whether clients send it by https only; `None`: if the request used https.
    pub secure: Option<bool>,
    /// The pool to which it belongs.
    pub group: String,
    /// Without the cluster's key, clients can compute the session names of members.
    pub key: Option<Key>,
}

/// The session information of a request.
#[derive(Debug, Default)]
pub(crate) struct Session<'a> {
    /// Session names of members; the first that exists identifies the session's member.
    names: SmallVec<[&'a [u8]; 2]>,
    /// Selects another member if that one is not up; `None`: the policy does.
    pub(crate) hash: Option<u64>,
    /// Whether the reply sets a cookie if the request did not name the member.
    is_inserted: bool,
}

impl Sticky {
    /// The name that identifies the member called `name` in requests.
    pub(crate) fn session_name(&self, name: &str) -> String {
        match self {
            Sticky::Cookie(cookie) => cookie.value(name),
            Sticky::Route { .. } | Sticky::CookieHash(_) | Sticky::FieldHash(_) => name.to_owned(),
        }
    }

    /// `Set-Cookie` for sessions of the member with that session name, or empty; `is_secure`: the client used
    /// https.
    pub(crate) fn cookie_line(&self, session_name: &str, is_secure: bool) -> String {
        let Sticky::Cookie(InsertedCookie { name, attributes, secure, .. }) = self else {
            return String::new();
        };
        let secure = if secure.unwrap_or(is_secure) { "; Secure" } else { "" };
        // Other caches must not send one client's session to others (RFC 9111 7.3).
        format!(
            "Set-Cookie: {name}={session_name}{attributes}{secure}\r\nCache-Control: private\r\n"
        )
    }

    /// The part of `request` that distinguishes its session, if any: the value that is hashed, or the id
    /// before a member's name, which stays the same when another member continues the session. An inserted
    /// cookie is equal for all sessions of a member.
    pub fn session_id<'a>(&'a self, request: &'a RequestHead<'a, 'a>) -> Option<&'a [u8]> {
        let fields = &request.fields;
        let id = match self {
            Sticky::Route { cookie, parameter, separator } => {
                let id = ids_of_route(request, cookie, parameter).next()?;
                id.split(|byte| byte == separator).next()
            }
            Sticky::Cookie(_) => None,
            Sticky::CookieHash(name) => cookie::values(fields, name).next(),
            Sticky::FieldHash(name) => fields.get(name),
        };
        id.filter(|id| !id.is_empty())
    }

    /// Name of the cookie that is not sent to members.
    pub fn inserted(&self) -> Option<&str> {
        match self {
            Sticky::Cookie(cookie) => Some(&cookie.name),
            Sticky::Route { .. } | Sticky::CookieHash(_) | Sticky::FieldHash(_) => None,
        }
    }
}

impl InsertedCookie {
    /// The value for the member called `member`: it reveals nothing about the member, and clients without the
    /// key cannot choose a member.
    fn value(&self, member: &str) -> String {
        let id = match &self.key {
            Some(key) => key.session_id(&self.group, member),
            None => stable_hash(member.as_bytes(), stable_hash(self.group.as_bytes(), 0)),
        };
        format!("{id:016x}")
    }
}

impl PartialEq for InsertedCookie {
    /// The key is not compared: it is read once, at the start.
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.attributes, self.secure, &self.group)
            == (&other.name, &other.attributes, other.secure, &other.group)
    }
}

impl Eq for InsertedCookie {}

impl fmt::Debug for InsertedCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=..{}", self.name, self.attributes)
    }
}

impl<'a> Session<'a> {
    /// The session of `request`; empty if it has none.
    pub(crate) fn of(request: &'a RequestHead<'a, 'a>, sticky: Option<&'a Sticky>) -> Self {
        let fields = &request.fields;
        match sticky {
            None => Self::default(),
            Some(Sticky::Route { cookie, parameter, separator }) => {
                let mut session = Self::default();
                for id in ids_of_route(request, cookie, parameter).take(SESSION_NAMES_MAX) {
                    // After the first separator, as in mod_jk.
                    if let Some(at) = id.iter().position(|byte| byte == separator) {
                        session.hash.get_or_insert(stable_hash(&id[..at], 0));
                        session.names.push(&id[at + 1..]);
                    }
                }
                session
            }
            Some(Sticky::Cookie(InsertedCookie { name, .. })) => Self {
                names: cookie::values(fields, name).take(SESSION_NAMES_MAX).collect(),
                hash: None,
                is_inserted: true,
            },
            Some(Sticky::CookieHash(name)) => Self::hashed(cookie::values(fields, name).next()),
            Some(Sticky::FieldHash(name)) => Self::hashed(fields.get(name)),
        }
    }

    fn hashed(value: Option<&[u8]>) -> Self {
        Self { hash: value.map(|value| stable_hash(value, 0)), ..Self::default() }
    }

    /// Whether it names a member, which may or may not exist.
    pub(crate) fn names_any(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether some members with room may not suit it.
    pub(crate) fn is_bound(&self) -> bool {
        self.names_any() || self.hash.is_some()
    }

    /// The index of its member among the members with these session names.
    pub(crate) fn find<'m>(&self, members: impl Iterator<Item = &'m str> + Clone) -> Option<usize> {
        let member = |name: &&[u8]| members.clone().position(|it| it.as_bytes() == *name);
        self.names.iter().find_map(member)
    }

    /// Whether the reply of the member with that session name sets the cookie.
    pub(crate) fn is_new_at(&self, session_name: &str) -> bool {
        self.is_inserted && self.names.first().is_none_or(|name| *name != session_name.as_bytes())
    }
}

/// The session ids that end in a member's name.
fn ids_of_route<'a>(
    request: &'a RequestHead<'a, 'a>,
    cookie: &'a str,
    parameter: &str,
) -> impl Iterator<Item = &'a [u8]> {
    let in_path =
        (!parameter.is_empty()).then(|| cookie::path_parameter(request.path, parameter)).flatten();
    // A link that a client follows may contain another session than its cookie.
    in_path.into_iter().chain(cookie::values(&request.fields, cookie))
}

/// The member for a session without one: that with the highest random weight (Thaler and Ravishankar, 1998),
/// so that all processes select the same one, and few sessions move when members are added or removed.
/// `members` are hashes of names; configured weights are ignored.
pub(crate) fn highest_random_weight(
    hash: u64,
    members: impl Iterator<Item = (usize, u64)>,
) -> Option<usize> {
    let weight = |name_hash: u64| stable_hash(&name_hash.to_le_bytes(), hash);
    members.max_by_key(|(_, name_hash)| weight(*name_hash)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_http::{FieldSlots, HeadLimits, parse_request};

    use super::*;

    const MEMBERS: [&str; 3] = ["a", "b", "c"];

    fn route() -> Sticky {
        let (cookie, parameter) = ("JSESSIONID".to_owned(), "jsessionid".to_owned());
        Sticky::Route { cookie, parameter, separator: b'.' }
    }

    fn inserted(key: Option<&str>) -> Sticky {
        Sticky::Cookie(InsertedCookie {
            name: "skep-app".into(),
            attributes: "; Path=/; HttpOnly".into(),
            secure: None,
            group: "app".into(),
            key: key.map(|text| Key::from_text(text).unwrap()),
        })
    }

    /// Applies `ask` to the session of a request for `path` with these lines.
    fn session<T>(
        sticky: &Sticky,
        path: &str,
        lines: &str,
        ask: impl FnOnce(&Session<'_>) -> T,
    ) -> T {
        let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let mut slots = FieldSlots::new();
        let request = parse_request(&mut slots, head.as_bytes(), &HeadLimits::default()).unwrap();
        ask(&Session::of(&request, Some(sticky)))
    }

    #[test]
    fn a_route_stands_behind_the_first_dot_of_an_id() {
        let cases: [(&str, &str, Option<usize>); 10] = [
            ("/", "Cookie: JSESSIONID=1.b\r\n", Some(1)),
            ("/x;jsessionid=1.c?q", "", Some(2)),
            ("/x;jsessionid=1.c", "Cookie: JSESSIONID=1.b\r\n", Some(2)),
            ("/", "Cookie: JSESSIONID=1.gone; JSESSIONID=2.a\r\n", Some(0)),
            ("/", "Cookie: x=1\r\nCookie: JSESSIONID=1.a\r\n", Some(0)),
            ("/", "Cookie: JSESSIONID=1\r\n", None),
            ("/", "Cookie: JSESSIONID=1.\r\n", None),
            ("/", "Cookie: JSESSIONID=1.a.b\r\n", None),
            ("/", "Cookie: JSESSIONID=.a\r\n", Some(0)),
            ("/", "", None),
        ];
        for (path, lines, wanted) in cases {
            let found = session(&route(), path, lines, |it| it.find(MEMBERS.into_iter()));
            assert_eq!(found, wanted, "{path} {lines}");
        }
    }

    #[test]
    fn what_tells_sessions_apart_stays_when_their_member_changes() {
        let by_cookie = Sticky::CookieHash("sid".into());
        let by_field = Sticky::FieldHash("X-User".into());
        for (sticky, path, lines, wanted) in [
            (route(), "/", "Cookie: JSESSIONID=1.b\r\n", Some("1")),
            (route(), "/", "Cookie: JSESSIONID=1.a\r\n", Some("1")),
            (route(), "/", "Cookie: JSESSIONID=1\r\n", Some("1")),
            (route(), "/x;jsessionid=2.c", "Cookie: JSESSIONID=1.b\r\n", Some("2")),
            (route(), "/", "Cookie: JSESSIONID=.b\r\n", None),
            (route(), "/", "Cookie: other=1\r\n", None),
            (by_cookie.clone(), "/", "Cookie: sid=1.b\r\n", Some("1.b")),
            (by_cookie, "/", "Cookie: sid=\r\n", None),
            (by_field, "/", "X-User: ann\r\n", Some("ann")),
            (inserted(None), "/", "Cookie: skep-app=1\r\n", None),
        ] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
            let mut slots = FieldSlots::new();
            let request =
                parse_request(&mut slots, head.as_bytes(), &HeadLimits::default()).unwrap();
            assert_eq!(sticky.session_id(&request), wanted.map(str::as_bytes), "{path} {lines}");
        }
    }

    #[test]
    fn an_inserted_cookie_is_set_until_it_names_the_member() {
        for sticky in [inserted(None), inserted(Some("a secret of thirty-two characters"))] {
            let name = sticky.session_name("b");
            let line = format!("Cookie: skep-app={name}\r\n");
            session(&sticky, "/", &line, |session| {
                let names = MEMBERS.map(|member| sticky.session_name(member));
                assert_eq!(session.find(names.iter().map(String::as_str)), Some(1));
                assert!(!session.is_new_at(&names[1]) && session.is_new_at(&names[0]));
            });
            session(&sticky, "/", "", |session| assert!(session.is_new_at(&name)));
            for (is_secure, secure) in [(false, ""), (true, "; Secure")] {
                assert_eq!(
                    sticky.cookie_line(&name, is_secure),
                    format!(
                        "Set-Cookie: skep-app={name}; Path=/; HttpOnly{secure}\r\n\
                         Cache-Control: private\r\n"
                    )
                );
            }
        }
    }

    #[test]
    fn cookies_tell_members_only_to_those_with_the_key() {
        let of = |key| inserted(key).session_name("b");
        let first = of(Some("a secret of thirty-two characters"));
        assert_ne!(first, of(Some("another secret of this many letters")));
        assert_ne!(first, of(None));
        assert_eq!(first.len(), 16);
        let shown = format!("{:?}", inserted(Some("a secret of thirty-two characters")));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_hash_moves_only_the_sessions_of_a_member_that_goes() {
        let names: Vec<u64> = (0..8_u64).map(|at| stable_hash(&at.to_le_bytes(), 0)).collect();
        let at = |hash: u64, gone: Option<usize>| {
            let open = names.iter().copied().enumerate().filter(|(at, _)| Some(*at) != gone);
            highest_random_weight(hash, open).unwrap()
        };
        let mut counts = [0; 8];
        for hash in 0..8_000 {
            let home = at(hash, None);
            counts[home] += 1;
            let without = at(hash, Some(3));
            assert!(if home == 3 { without != 3 } else { without == home });
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
