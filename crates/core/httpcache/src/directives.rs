//! Cache-Control of responses and of requests (RFC 9111 5.2), its extensions for stale responses
//! (RFC 5861), and targeted fields (RFC 9213).
//!
//! Lenient in syntax, since refusing a page for its caching directives would help nobody, and
//! strict in semantics: in doubt, a response is considered less cacheable.

use crate::limits::{DELTA_SECONDS_MAX, FIELD_NAMES_MAX};
use crate::list::{directive, is_token, members, seconds, unquoted};
use crate::structured::{Item, dictionary};

/// Fields that address this cache; the first one that is valid and not empty applies (RFC 9213
/// 2.1). The first is for Skep only, and never forwarded to clients.
pub const TARGETED_FIELDS: [&str; 2] = ["skep-cache-control", "cdn-cache-control"];

/// The scope of a directive that may list fields: `no-cache`, `private` (RFC 9111 5.2.2.4,
/// 5.2.2.7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DirectiveScope {
    /// The directive is absent.
    #[default]
    Nothing,
    /// These fields, in lower case.
    Fields(Vec<String>),
    /// The whole response.
    Response,
}

impl DirectiveScope {
    /// Whether the directive is present, with or without field names.
    pub fn is_set(&self) -> bool {
        *self != Self::Nothing
    }

    /// Whether it lists this field.
    pub fn names(&self, field: &[u8]) -> bool {
        let Self::Fields(names) = self else { return false };
        names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Memory on the heap, in bytes.
    fn heap_bytes(&self) -> usize {
        let Self::Fields(names) = self else { return 0 };
        names.iter().map(|name| size_of::<String>() + name.capacity()).sum()
    }

    /// Adds an occurrence of the directive. Invalid field names make it apply to the whole
    /// response.
    fn add(&mut self, names: Option<&[u8]>) {
        let mut known = match std::mem::replace(self, Self::Response) {
            Self::Response => return,
            Self::Fields(known) => known,
            Self::Nothing => Vec::new(),
        };
        let Some(names) = names else { return };
        let names: Vec<_> = members(names).collect();
        let is_list = !names.is_empty() && names.iter().all(|name| is_token(name));
        if is_list && known.len() + names.len() <= FIELD_NAMES_MAX {
            let lower = |name: &&[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
            known.extend(names.iter().map(lower));
            *self = Self::Fields(known);
        }
    }
}

/// Response directives that a shared cache obeys (RFC 9111 5.2.2, RFC 5861).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// Freshness lifetime in seconds; 0 if it is invalid, or given twice with different values (RFC
    /// 9111 4.2.1).
    pub max_age_s: Option<u64>,
    /// Freshness lifetime in shared caches, in seconds; likewise.
    pub s_maxage_s: Option<u64>,
    /// Seconds after the freshness lifetime in which it may be used while it is revalidated (RFC
    /// 5861 3).
    pub stale_while_revalidate_s: Option<u64>,
    /// Seconds after the freshness lifetime in which it may be used if the origin fails (RFC 5861
    /// 4).
    pub stale_if_error_s: Option<u64>,
    /// Must not be stored (5.2.2.5).
    pub no_store: bool,
    /// Must not be used without validation (5.2.2.4).
    pub no_cache: DirectiveScope,
    /// Not for shared caches (5.2.2.7).
    pub private: DirectiveScope,
    /// May be stored by shared caches (5.2.2.9).
    pub public: bool,
    /// Must not be used stale (5.2.2.2).
    pub must_revalidate: bool,
    /// Must not be used stale by shared caches (5.2.2.8).
    pub proxy_revalidate: bool,
    /// May be stored only by caches that understand its status, which then ignore `no-store`
    /// (5.2.2.3).
    pub must_understand: bool,
}

impl ResponseDirectives {
    /// Parses all lines of Cache-Control.
    pub fn parse<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut directives = Self::default();
        for member in lines.flat_map(members) {
            let (name, value) = directive(member);
            directives.add(&name.to_ascii_lowercase(), value);
        }
        directives
    }

    /// Parses all lines of a targeted field (RFC 9213 2.1); `None` if it is invalid or empty, and
    /// must be ignored. A permissive directive with a value of the wrong type is ignored.
    pub fn parse_targeted<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Option<Self> {
        let members = dictionary(lines)?;
        let mut directives = Self::default();
        for (name, item) in &members {
            directives.add_targeted(name.as_bytes(), item);
        }
        (!members.is_empty()).then_some(directives)
    }

    /// Memory on the heap, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.no_cache.heap_bytes() + self.private.heap_bytes()
    }

    fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        if let Some(place) = self.seconds(name) {
            return add_seconds(place, value.and_then(seconds).unwrap_or(0));
        }
        match name {
            b"no-cache" => self.no_cache.add(value.map(|text| unquoted(text).unwrap_or(text))),
            b"private" => self.private.add(value.map(|text| unquoted(text).unwrap_or(text))),
            name => self.set(name),
        }
    }

    fn add_targeted(&mut self, name: &[u8], item: &Item) {
        if let Some(place) = self.seconds(name) {
            if let Item::Integer(number) = item {
                *place = Some(u64::try_from(*number).unwrap_or(0).min(DELTA_SECONDS_MAX));
            }
            return;
        }
        let names = if let Item::Text(names) = item { Some(names.as_bytes()) } else { None };
        match (name, item) {
            (_, Item::Boolean(false)) => {}
            (b"no-cache", _) => self.no_cache.add(names),
            (b"private", _) => self.private.add(names),
            (b"public" | b"must-understand", Item::Boolean(true)) => self.set(name),
            // They are permissive, so their type must be right.
            (b"public" | b"must-understand", _) => {}
            (name, _) => self.set(name),
        }
    }

    fn seconds(&mut self, name: &[u8]) -> Option<&mut Option<u64>> {
        match name {
            b"max-age" => Some(&mut self.max_age_s),
            b"s-maxage" => Some(&mut self.s_maxage_s),
            b"stale-while-revalidate" => Some(&mut self.stale_while_revalidate_s),
            b"stale-if-error" => Some(&mut self.stale_if_error_s),
            _ => None,
        }
    }

    fn set(&mut self, name: &[u8]) {
        match name {
            b"no-store" => self.no_store = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            // Unknown ones are ignored (5.2.3).
            _ => {}
        }
    }
}

/// RFC 9111 4.2.1: if lifetimes conflict or are invalid, the response is considered stale.
fn add_seconds(place: &mut Option<u64>, seconds: u64) {
    *place = match *place {
        Some(earlier) if earlier != seconds => Some(0),
        _ => Some(seconds),
    };
}

/// Request directives (RFC 9111 5.2.1), including Pragma (5.4). They are advisory: a cache obeys
/// those that its settings specify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// Largest acceptable age, in seconds (5.2.1.1).
    pub max_age_s: Option<u64>,
    /// Acceptable staleness, in seconds (5.2.1.2); unlimited without a value.
    pub max_stale_s: Option<u64>,
    /// Required remaining freshness, in seconds (5.2.1.3).
    pub min_fresh_s: Option<u64>,
    /// Validation is required (5.2.1.4).
    pub no_cache: bool,
    /// The response must not be stored (5.2.1.5).
    pub no_store: bool,
    /// Only a stored response is acceptable (5.2.1.7).
    pub only_if_cached: bool,
}

impl RequestDirectives {
    /// Parses all lines of Cache-Control, or those of Pragma if there is no Cache-Control.
    pub fn parse<'v>(
        cache_control: impl Iterator<Item = &'v [u8]>,
        pragma: impl Iterator<Item = &'v [u8]>,
    ) -> Self {
        let mut directives = Self::default();
        let mut has_control = false;
        for line in cache_control {
            has_control = true;
            members(line).for_each(|member| directives.add(member));
        }
        let mut pragma = pragma.flat_map(members);
        if !has_control && pragma.any(|member| member.eq_ignore_ascii_case(b"no-cache")) {
            directives.no_cache = true;
        }
        directives
    }

    fn add(&mut self, member: &[u8]) {
        let (name, value) = directive(member);
        let number = value.and_then(seconds);
        match name.to_ascii_lowercase().as_slice() {
            b"max-age" => self.max_age_s = min_of(self.max_age_s, number.unwrap_or(0)),
            b"max-stale" => {
                // An invalid value allows nothing.
                let unread = if value.is_none() { DELTA_SECONDS_MAX } else { 0 };
                self.max_stale_s = min_of(self.max_stale_s, number.unwrap_or(unread));
            }
            b"min-fresh" => self.min_fresh_s = self.min_fresh_s.max(number),
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"only-if-cached" => self.only_if_cached = true,
            _ => {}
        }
    }
}

fn min_of(earlier: Option<u64>, number: u64) -> Option<u64> {
    Some(earlier.map_or(number, |earlier| earlier.min(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> ResponseDirectives {
        ResponseDirectives::parse(lines.iter().map(|line| line.as_bytes()))
    }

    fn targeted(line: &str) -> Option<ResponseDirectives> {
        ResponseDirectives::parse_targeted([line.as_bytes()].into_iter())
    }

    #[test]
    fn directives_are_read_from_all_lines_in_any_case() {
        let control = parse(&["Public, MAX-AGE=60 , s-maxage=\"70\"", "stale-while-revalidate=5"]);
        assert!(control.public && !control.private.is_set() && !control.no_store);
        assert_eq!((control.max_age_s, control.s_maxage_s), (Some(60), Some(70)));
        assert_eq!(control.stale_while_revalidate_s, Some(5));
        let control = parse(&["no-store,no-cache,private,proxy-revalidate,stale-if-error=9"]);
        assert!(control.no_store && control.proxy_revalidate && !control.must_revalidate);
        assert_eq!(control.private, DirectiveScope::Response);
        assert_eq!(control.stale_if_error_s, Some(9));
        assert!(parse(&["must-understand, must-revalidate"]).must_understand);
    }

    #[test]
    fn what_is_doubtful_is_less_cacheable() {
        for text in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=1, max-age=2"] {
            assert_eq!(parse(&[text]).max_age_s, Some(0), "{text}");
        }
        assert_eq!(parse(&["max-age=5, max-age=5"]).max_age_s, Some(5));
        assert_eq!(parse(&["max-age=99999999999999999999"]).max_age_s, Some(DELTA_SECONDS_MAX));
        assert_eq!(parse(&["x=\"a\\\", max-age=5\", max-age=7"]).max_age_s, Some(7));
        assert_eq!(parse(&["", ",,", "="]), ResponseDirectives::default());
    }

    #[test]
    fn scopes_are_fields_or_everything() {
        let of = |text: &str| parse(&[text]).no_cache;
        let fields = |names: &[&str]| {
            DirectiveScope::Fields(names.iter().map(|name| (*name).to_owned()).collect())
        };
        assert_eq!(of("no-cache=\"A, b\""), fields(&["a", "b"]));
        assert_eq!(of("no-cache=a"), fields(&["a"]), "as a token, too (RFC 9111 5.2)");
        assert_eq!(of("no-cache=a, no-cache=\"b\""), fields(&["a", "b"]));
        for all in [
            "no-cache",
            "no-cache=",
            "no-cache=\"\"",
            "no-cache=\"a b\"",
            "no-cache=\"a",
            "no-cache, no-cache=a",
            "no-cache=a, no-cache",
        ] {
            assert_eq!(of(all), DirectiveScope::Response, "{all}");
        }
        assert_eq!(of("no-cache=\"a, max-age=5\""), DirectiveScope::Response);
        let many = "a,".repeat(FIELD_NAMES_MAX + 1);
        assert_eq!(of(&format!("no-cache=\"{many}\"")), DirectiveScope::Response);
        assert!(fields(&["set-cookie"]).names(b"Set-Cookie"));
        assert!(!fields(&["set-cookie"]).names(b"Cookie"));
    }

    #[test]
    fn targeted_fields_are_structured() {
        let read = targeted("max-age=60, s-maxage=70;x, must-revalidate, private=\"a\"");
        let read = read.unwrap_or_default();
        assert_eq!((read.max_age_s, read.s_maxage_s), (Some(60), Some(70)));
        assert!(read.must_revalidate && read.private.names(b"a"));
        assert_eq!(targeted("max-age=1, max-age=2").and_then(|read| read.max_age_s), Some(2));
        assert_eq!(targeted("max-age=-5").and_then(|read| read.max_age_s), Some(0));
        assert_eq!(
            targeted("max-age=99999999999").and_then(|read| read.max_age_s),
            Some(DELTA_SECONDS_MAX)
        );
        for ignored in ["", "max-age=10000, &&&&&", "MaX-aGe=3600", "max-age =100", "max-age= 1"] {
            assert_eq!(targeted(ignored), None, "{ignored}");
        }
        for no_lifetime in ["max-age=\"10\"", "max-age=1.5", "max-age", "max-age=ten", "foo"] {
            assert_eq!(targeted(no_lifetime), Some(ResponseDirectives::default()), "{no_lifetime}");
        }
    }

    #[test]
    fn a_wrong_type_forbids_still_and_allows_nothing() {
        let of = |line: &str| targeted(line).unwrap_or_default();
        assert!(of("no-store=1").no_store && of("no-cache=x").no_cache.is_set());
        assert!(!of("no-store=?0").no_store && !of("private=?0").private.is_set());
        assert!(of("public").public && !of("public=1").public);
    }

    #[test]
    fn requests_are_read_with_pragma_where_there_is_nothing_else() {
        let of = |control: &[&'static str], pragma: &'static str| {
            let control = control.iter().map(|line| line.as_bytes());
            RequestDirectives::parse(control, [pragma.as_bytes()].into_iter())
        };
        assert!(of(&[], "no-cache").no_cache && of(&["No-Cache"], "").no_cache);
        assert!(!of(&["max-age=5"], "no-cache").no_cache, "RFC 9111 5.4");
        assert_eq!(of(&["nothing-to-see-here"], "foo"), RequestDirectives::default());
        let read = of(&["max-age=5, max-stale, min-fresh=3", "no-store, only-if-cached"], "");
        assert_eq!((read.max_age_s, read.max_stale_s), (Some(5), Some(DELTA_SECONDS_MAX)));
        assert!(read.no_store && read.only_if_cached && read.min_fresh_s == Some(3));
        assert_eq!(of(&["max-stale=x, max-age=9, max-age=x"], "").max_stale_s, Some(0));
    }
}
