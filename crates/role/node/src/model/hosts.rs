//! Look-up of a site by host name.

use std::collections::HashMap;

use skep_config::SiteConfig;
use skep_wire::limits::HOST_BYTES_MAX;

/// Host names and the index of the site of each.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    exact: HashMap<Box<[u8]>, usize>,
    /// Suffixes including their dot, `.example.org`; longest first.
    wildcards: Vec<(Box<[u8]>, usize)>,
    default: Option<usize>,
}

impl Hosts {
    pub(crate) fn new(configs: &[SiteConfig]) -> Self {
        let mut hosts = Self::default();
        for (index, config) in configs.iter().enumerate() {
            if config.hosts.is_empty() {
                hosts.default.get_or_insert(index);
            }
            for host in &config.hosts {
                hosts.add(&host.to_ascii_lowercase(), index);
            }
        }
        hosts.wildcards.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        hosts
    }

    /// Exact names take precedence over wildcards, these over the default.
    pub(crate) fn find(&self, host: &[u8]) -> Option<usize> {
        if self.exact.is_empty() && self.wildcards.is_empty() {
            return self.default;
        }
        let mut buffer = [0u8; HOST_BYTES_MAX];
        let name = buffer.get_mut(..host.len())?;
        name.copy_from_slice(host);
        name.make_ascii_lowercase();
        self.exact.get(&*name).copied().or_else(|| {
            let wild = self.wildcards.iter().find(|(suffix, _)| name.ends_with(suffix));
            wild.map(|&(_, index)| index).or(self.default)
        })
    }

    fn add(&mut self, host: &str, index: usize) {
        if host == "*" {
            self.default.get_or_insert(index);
        } else if let Some(suffix) = host.strip_prefix('*') {
            self.wildcards.push((suffix.as_bytes().into(), index));
        } else {
            self.exact.entry(host.as_bytes().into()).or_insert(index);
        }
    }
}
