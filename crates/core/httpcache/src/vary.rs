//! Vary (RFC 9110 12.5.5) and secondary keys (RFC 9111 4.1): which of several responses under one
//! primary key matches a request.

use crate::limits::{SECONDARY_KEY_BYTES_MAX, VARY_NAMES_MAX};
use crate::list::{all_members, is_token, members};

/// Names of the request fields that a response depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaryNames {
    /// In lower case, sorted, each once.
    names: Vec<String>,
    /// `*`, or names so many or invalid that no other request is certain to match.
    is_all: bool,
}

/// The normalised values of the fields in Vary, from one request. Equal keys mean matching
/// requests: a missing field matches only a missing one (RFC 9111 4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecondaryKey(Vec<u8>);

impl SecondaryKey {
    /// The key that another node with the same rules has written as [`Self::as_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Its bytes: lines `name=value` and `name`; used in the names of objects.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl VaryNames {
    /// Parses all lines of Vary.
    pub fn parse<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut vary = Self::default();
        for name in lines.flat_map(members) {
            // `*` is a token, too; an invalid name refers to something unknown.
            if name == b"*" || !is_token(name) || vary.names.len() == VARY_NAMES_MAX {
                vary.is_all = true;
                break;
            }
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            if let Err(place) = vary.names.binary_search(&name) {
                vary.names.insert(place, name);
            }
        }
        vary
    }

    /// The names, in lower case and sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether no other request is certain to match.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether the response is the same for all requests.
    pub fn is_nothing(&self) -> bool {
        !self.is_all && self.names.is_empty()
    }

    /// Whether it lists this field; `name` is in lower case.
    pub fn has(&self, name: &str) -> bool {
        self.is_all || self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }

    /// The secondary key of a request with these fields, as names and values; `None` if there is
    /// none (`*`, or values that are too long).
    pub fn secondary_key<'f>(
        &self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> Option<SecondaryKey> {
        if self.is_all {
            return None;
        }
        let mut key = Vec::new();
        for name in &self.names {
            let is_it = |field: &(&[u8], _)| field.0.eq_ignore_ascii_case(name.as_bytes());
            let values = fields.clone().filter(is_it).map(|(_, value)| value);
            key.extend_from_slice(name.as_bytes());
            write_normalised(&mut key, name, values);
            key.push(b'\n');
            if key.len() > SECONDARY_KEY_BYTES_MAX {
                return None;
            }
        }
        Some(SecondaryKey(key))
    }

    /// Memory on the heap, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.names.iter().map(|name| size_of::<String>() + name.capacity()).sum()
    }
}

/// One of several stored responses under a primary key.
#[derive(Clone, Copy, Debug)]
pub struct StoredVariant<'a> {
    /// Its Vary.
    pub vary: &'a VaryNames,
    /// The secondary key of the request that it answered.
    pub key: &'a SecondaryKey,
    /// When it was generated, in seconds since the Unix epoch.
    pub made_unix_s: u64,
}

/// The index of the variant that answers a request with these fields (RFC 9111 4.1): of those that
/// match, one with Vary before one without, then the most recent by Date (4).
pub fn select_variant<'f>(
    variants: &[StoredVariant<'_>],
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
) -> Option<usize> {
    let is_match = |variant: &StoredVariant<'_>| {
        variant.vary.secondary_key(fields.clone()).is_some_and(|key| key == *variant.key)
    };
    let matching = variants.iter().enumerate().filter(|(_, variant)| is_match(variant));
    let rank = |variant: &StoredVariant<'_>| (!variant.vary.is_nothing(), variant.made_unix_s);
    matching.max_by_key(|(_, variant)| rank(variant)).map(|(place, _)| place)
}

/// Appends `=` and the normalised values, or nothing if there are none. Only values with the same
/// meaning become equal (RFC 9111 4.1).
fn write_normalised<'v>(
    out: &mut Vec<u8>,
    name: &str,
    values: impl Iterator<Item = &'v [u8]> + Clone,
) {
    if values.clone().next().is_none() {
        return;
    }
    out.push(b'=');
    let weighted = match name {
        "accept-encoding" => weighted(values.clone(), |coding| match coding {
            b"x-gzip" => b"gzip",
            b"x-compress" => b"compress",
            coding => coding,
        })
        .map(|mut list| {
            // The order has no meaning (RFC 9110 12.5.3).
            list.sort_unstable();
            list.dedup();
            list
        }),
        // Order among equal weights has no meaning either (12.5.4), but applications choose by it.
        "accept-language" => weighted(values.clone(), |range| range).map(|mut list| {
            list.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
            list
        }),
        _ => None,
    };
    match weighted {
        Some(list) => write_weighted(out, &list),
        // Several lines are one list; whitespace around commas has no meaning (RFC 9110 5.3).
        None => {
            let parts: Vec<_> = values.flat_map(all_members).collect();
            out.extend_from_slice(&parts.join(&b","[..]));
        }
    }
}

/// A preference in lower case, with its weight in thousandths.
type Weighted = (Vec<u8>, u16);

/// The members of a list of preferences (RFC 9110 12.4.2); `None` if one is invalid.
fn weighted<'v>(
    values: impl Iterator<Item = &'v [u8]>,
    name_of: impl for<'n> Fn(&'n [u8]) -> &'n [u8],
) -> Option<Vec<Weighted>> {
    let mut list = Vec::new();
    for member in values.flat_map(members) {
        let (name, weight) = match member.iter().position(|byte| *byte == b';') {
            Some(at) => (member[..at].trim_ascii(), weight(member[at + 1..].trim_ascii())?),
            None => (member, 1000),
        };
        is_token(name).then(|| {
            list.push((name_of(&name.to_ascii_lowercase()).to_vec(), weight));
        })?;
    }
    Some(list)
}

/// `q=0.5` in thousandths.
fn weight(parameter: &[u8]) -> Option<u16> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, rest) = value.split_first()?;
    let fraction = if rest.is_empty() { rest } else { rest.strip_prefix(b".")? };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |place: usize| fraction.get(place).map_or(0, |byte| u16::from(byte - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match (whole, thousandths) {
        (b'1', 0) => Some(1000),
        (b'0', thousandths) => Some(thousandths),
        _ => None,
    }
}

fn write_weighted(out: &mut Vec<u8>, list: &[Weighted]) {
    for (place, (name, weight)) in list.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        if *weight != 1000 {
            out.extend_from_slice(format!(";{weight}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The field Vary, and the fields of two requests.
    type Pair = (&'static str, Sent, Sent);
    type Sent = &'static [(&'static str, &'static str)];

    fn vary(lines: &[&str]) -> VaryNames {
        VaryNames::parse(lines.iter().map(|line| line.as_bytes()))
    }

    fn key(vary: &VaryNames, fields: &[(&str, &str)]) -> Option<SecondaryKey> {
        vary.secondary_key(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn a_star_anywhere_is_a_star() {
        for lines in
            [&["*"][..], &["*, *"], &["*", "*"], &[", *"], &["", "*"], &["*, Foo"], &["Foo, *"]]
        {
            assert!(vary(lines).is_all(), "{lines:?}");
        }
        assert!(vary(&["a b"]).is_all(), "no name");
        assert!(!vary(&["Foo, bar", "FOO"]).is_all());
        assert_eq!(vary(&["Foo, bar", "FOO"]).names(), ["bar", "foo"]);
        assert!(vary(&["", ","]).is_nothing());
        let many: Vec<_> = (0..=VARY_NAMES_MAX).map(|number| format!("a{number}")).collect();
        assert!(vary(&[&many.join(",")]).is_all());
    }

    #[test]
    fn values_that_mean_the_same_make_the_same_key() {
        let same: &[Pair] = &[
            ("foo", &[("Foo", "1, 2")], &[("foo", "1"), ("FOO", "2")]),
            ("foo", &[("foo", "1,2")], &[("foo", " 1, 2 ")]),
            ("accept-language", &[("accept-language", "en, de")], &[("accept-language", "eN, De")]),
            (
                "accept-language",
                &[("accept-language", "de;q=0.5, en")],
                &[("accept-language", "en, de;q=0.50")],
            ),
            (
                "accept-encoding",
                &[("accept-encoding", "gzip, br")],
                &[("accept-encoding", "BR;q=1.0,x-gzip")],
            ),
        ];
        for (name, a, b) in same {
            let vary = vary(&[name]);
            assert!(key(&vary, a).is_some() && key(&vary, a) == key(&vary, b), "{a:?} {b:?}");
        }
    }

    #[test]
    fn values_that_may_mean_another_thing_do_not() {
        let different: &[Pair] = &[
            ("foo", &[("foo", "1")], &[("foo", "2")]),
            ("foo", &[("foo", "1")], &[]),
            ("foo", &[("foo", "")], &[]),
            ("foo", &[("foo", "a")], &[("foo", "A")]),
            ("foo", &[("foo", "a, b")], &[("foo", "b, a")]),
            ("foo", &[("foo", "\"a, b\"")], &[("foo", "\"a,b\"")]),
            ("foo, bar", &[("foo", "1\nbar=2")], &[("foo", "1"), ("bar", "2")]),
            ("accept-language", &[("accept-language", "en, de")], &[("accept-language", "de, en")]),
            ("accept-encoding", &[("accept-encoding", "gzip")], &[("accept-encoding", "gzip;q=0")]),
            ("accept-encoding", &[("accept-encoding", "gzip;q=2")], &[("accept-encoding", "gzip")]),
        ];
        for (name, a, b) in different {
            let vary = vary(&[name]);
            assert_ne!(key(&vary, a), key(&vary, b), "{name}: {a:?} {b:?}");
        }
        assert_eq!(key(&vary(&["*"]), &[]), None);
        let long = "x".repeat(SECONDARY_KEY_BYTES_MAX);
        assert_eq!(key(&vary(&["foo"]), &[("foo", &long)]), None);
    }

    #[test]
    fn the_most_specific_then_the_latest_variant_is_selected() {
        let request = |value: &'static str| [(&b"foo"[..], value.as_bytes())].into_iter();
        let (none, foo) = (vary(&[]), vary(&["Foo"]));
        let plain = key(&none, &[]).unwrap_or_default();
        let one = key(&foo, &[("foo", "1")]).unwrap_or_default();
        let stored = |vary, key, made_unix_s| StoredVariant { vary, key, made_unix_s };
        let variants = [stored(&none, &plain, 9), stored(&foo, &one, 5), stored(&foo, &one, 7)];
        assert_eq!(select_variant(&variants, request("1")), Some(2));
        assert_eq!(select_variant(&variants, request("2")), Some(0), "without Vary it fits all");
        assert_eq!(select_variant(&variants[1..], request("2")), None);
    }
}
