//! php-fpm's status page (`pm.status_path`) in its short form: the full form contains texts of clients,
//! which some versions do not escape.

use super::{Findings, numbers};

/// The path that php-fpm's default configuration suggests for `pm.status_path`.
pub(super) const PATH: &str = "/status";

const NAMES: &[(&str, &str)] = &[
    ("active processes", "processes_active"),
    ("idle processes", "processes_idle"),
    ("total processes", "processes"),
    ("max active processes", "processes_active_max"),
    ("listen queue", "listen_queue"),
    ("max listen queue", "listen_queue_max"),
    ("max children reached", "children_max_reached_total"),
    ("slow requests", "slow_requests_total"),
    ("accepted conn", "requests_total"),
];

pub(super) fn read(body: &str) -> Result<Findings, String> {
    let status: serde_json::Value = serde_json::from_str(body)
        .map_err(|error| format!("its answer is no status of php-fpm: {error}"))?;
    let values = numbers(&status, NAMES);
    match values.is_empty() {
        true => Err("its answer is no status of php-fpm: it has no `active processes`".to_owned()),
        false => Ok(Findings { values, ..Findings::default() }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_short_form_is_read() {
        // The output of php-fpm 8.2.
        let body = r#"{"pool":"www","process manager":"static","start time":1,"start since":2,"accepted conn":17,"listen queue":0,"max listen queue":0,"listen queue len":511,"idle processes":2,"active processes":1,"total processes":3,"max active processes":2,"max children reached":0,"slow requests":0}"#;
        let values = read(body).unwrap().values;
        assert_eq!(values[0], ("processes_active".to_owned(), 1.0));
        assert_eq!(values.len(), NAMES.len());
        assert!(read("{}").is_err() && read("pool: www").is_err() && read("[1]").is_err());
    }
}
