//! A received response, and accessors for tests.

/// One whole response; or its head alone, where that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names as sent, and values without the space around them.
    pub headers: Vec<(String, String)>,
    /// The body, chunks put together.
    pub body: Vec<u8>,
    /// Every byte of the response.
    pub raw: Vec<u8>,
}

impl Response {
    /// The value of a field that may occur once; `None` without it.
    ///
    /// # Panics
    /// When it occurs more than once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.header_all(name);
        let first = values.next();
        assert!(values.next().is_none(), "more than one {name}:\n{}", self.head_text());
        first
    }

    /// All values of a field.
    pub fn header_all(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = move |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|(_, value)| value.as_str())
    }

    /// What the cache did, as far as the reply says it.
    #[track_caller]
    pub fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or("none")
    }

    /// Whether the server said that it will close the connection.
    pub fn says_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as text, bad UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts the status, showing the whole head when it's another.
    #[track_caller]
    pub fn assert_status(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "status of:\n{}", self.head_text());
        self
    }

    /// Asserts the value of a field.
    #[track_caller]
    pub fn assert_header(&self, name: &str, value: &str) -> &Self {
        assert_eq!(self.header(name), Some(value), "{name} of:\n{}", self.head_text());
        self
    }

    /// The head as it came.
    pub fn head_text(&self) -> String {
        let end = find(&self.raw, b"\r\n\r\n").unwrap_or(self.raw.len());
        String::from_utf8_lossy(&self.raw[..end]).into_owned()
    }
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
