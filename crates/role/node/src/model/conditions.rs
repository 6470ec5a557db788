//! Conditions of a route on requests, besides the path.

use skep_config::RouteConfig;
use skep_http::{Fields, Method, RequestHead};

/// The parts of a request that conditions are checked against.
#[derive(Clone, Copy)]
pub(crate) struct RouteInput<'a, 'h, 'b> {
    method: Method<'b>,
    fields: Option<&'a Fields<'h, 'b>>,
}

impl<'a, 'h, 'b> RouteInput<'a, 'h, 'b> {
    pub(crate) fn of(request: &'a RequestHead<'h, 'b>) -> Self {
        Self { method: request.method, fields: Some(&request.fields) }
    }
}

impl RouteInput<'static, 'static, 'static> {
    /// A GET without any field.
    pub(crate) const GET: Self = Self { method: Method::Get, fields: None };
}

/// The conditions of a route; every request meets an empty set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    /// The request has one of these; empty: any.
    methods: Vec<String>,
    /// The request has all of these.
    fields: Vec<(String, FieldPattern)>,
}

/// The condition on the value of a field.
#[derive(Clone, Debug)]
enum FieldPattern {
    Equals(Box<[u8]>),
    BeginsWith(Box<[u8]>),
}

impl Conditions {
    pub(crate) fn new(config: &RouteConfig) -> Self {
        let pattern = |text: &String| match text.strip_suffix('*') {
            Some(beginning) => FieldPattern::BeginsWith(beginning.as_bytes().into()),
            None => FieldPattern::Equals(text.as_bytes().into()),
        };
        let fields = config.match_headers.iter();
        Self {
            methods: config.methods.clone(),
            fields: fields.map(|(name, value)| (name.clone(), pattern(value))).collect(),
        }
    }

    #[inline]
    pub(crate) fn are_met(&self, input: &RouteInput<'_, '_, '_>) -> bool {
        let is_method = self.methods.is_empty()
            || self.methods.iter().any(|method| method == input.method.as_str());
        is_method
            && self.fields.iter().all(|(name, pattern)| {
                let fields = input.fields.into_iter();
                fields.flat_map(|fields| fields.all(name)).any(|value| pattern.matches(value))
            })
    }

    /// Whether a request for a file can meet them.
    pub(crate) fn concern_files(&self) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|it| matches!(&**it, "GET" | "HEAD"))
    }

    /// Names of the fields that they check.
    pub(crate) fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }
}

impl FieldPattern {
    fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Equals(text) => value == &**text,
            Self::BeginsWith(text) => value.starts_with(text),
        }
    }
}

/// Part of the names that identify a route in the cluster; empty without conditions.
impl std::fmt::Display for Conditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.methods.is_empty() {
            write!(f, " by {}", self.methods.join(","))?;
        }
        for (name, pattern) in &self.fields {
            let (text, end) = match pattern {
                FieldPattern::Equals(text) => (text, ""),
                FieldPattern::BeginsWith(text) => (text, "*"),
            };
            write!(f, " with {name}: {}{end}", String::from_utf8_lossy(text))?;
        }
        Ok(())
    }
}
