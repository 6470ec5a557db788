//! Writes a config as TOML text, without or with defaults.

/// Collects the text of a file.
pub(crate) struct Writer {
    text: String,
    /// Whether settings with their default value are also written, marked as such.
    full: bool,
    /// Header of a table without any written setting so far.
    pending: Option<&'static str>,
}

impl Writer {
    pub(crate) fn new(full: bool) -> Self {
        Self { text: String::new(), full, pending: None }
    }

    /// Begins a table. A row is written even if it remains empty, since its existence matters.
    pub(crate) fn table(&mut self, path: &'static str, row: bool) {
        self.pending = (!path.is_empty() && !row).then_some(path);
        if row {
            self.header(&format!("[[{path}]]"));
        }
    }

    /// Writes a setting of the current table. `value` is TOML; `None` if unset.
    pub(crate) fn setting(&mut self, key: &str, value: Option<String>, default: Option<String>) {
        let is_default = value == default;
        if is_default && !self.full {
            return;
        }
        if let Some(path) = self.pending.take() {
            self.header(&format!("[{path}]"));
        }
        let line = match value {
            Some(value) if is_default => format!("{key} = {value} # default\n"),
            Some(value) => format!("{key} = {value}\n"),
            None => format!("# {key} is not set\n"),
        };
        self.text.push_str(&line);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn header(&mut self, header: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(header);
        self.text.push('\n');
    }
}
