//! Tomcat's manager: its status as JSON, and versions and sessions from its JMX proxy.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Findings, numbers, shown};
use crate::limits::AGENT_CONTEXTS_MAX;

/// The path in Debian's package tomcat10-admin.
pub(super) const PATH: &str = "/manager/status";

const MEMORY: &[(&str, &str)] =
    &[("free", "memory_free_bytes"), ("total", "memory_total_bytes"), ("max", "memory_max_bytes")];

const THREADS: &[(&str, &str)] = &[
    ("currentThreadsBusy", "threads_busy"),
    ("currentThreadCount", "threads"),
    ("maxThreads", "threads_max"),
];

const REQUESTS: &[(&str, &str)] =
    &[("requestCount", "requests_total"), ("errorCount", "errors_total")];

/// The status: memory, and the sums of all connectors.
pub(super) fn read(body: &str) -> Result<Findings, String> {
    let status: Value = serde_json::from_str(body).map_err(|error| {
        format!("its answer is no JSON, which Tomcats of some years ago do not know: {error}")
    })?;
    let memory = status.pointer("/tomcat/jvm/memory").unwrap_or(&Value::Null);
    let mut values = numbers(memory, MEMORY);
    if values.is_empty() {
        return Err("its answer is no status of Tomcat: it has no memory of a JVM".to_owned());
    }
    let connectors = status.pointer("/tomcat/connector").and_then(Value::as_array);
    let mut sums: Vec<(String, f64)> = Vec::new();
    for connector in connectors.map(Vec::as_slice).unwrap_or_default() {
        let threads = numbers(&connector["threadInfo"], THREADS);
        let requests = numbers(&connector["requestInfo"], REQUESTS);
        for (name, number) in threads.into_iter().chain(requests) {
            match sums.iter_mut().find(|(known, _)| *known == name) {
                // -1 means unknown.
                Some((_, sum)) => *sum += number.max(0.0),
                None => sums.push((name, number.max(0.0))),
            }
        }
    }
    values.extend(sums);
    Ok(Findings { values, ..Findings::default() })
}

/// The target at the JMX proxy for the version.
pub(super) fn version_target(path: &str) -> String {
    format!("{}/jmxproxy/?get=Catalina:type=Server&att=serverInfo", manager(path))
}

/// The target at the JMX proxy for the sessions of all applications.
pub(super) fn sessions_target(path: &str) -> String {
    format!("{}/jmxproxy/?qry=Catalina:type=Manager,*", manager(path))
}

fn manager(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or("", |(manager, _)| manager)
}

/// Adds the responses of the JMX proxy.
pub(super) fn read_jmx(version: &str, sessions: &str, found: &mut Findings) -> Result<(), String> {
    // OK - Attribute get 'Catalina:type=Server' - serverInfo = Apache Tomcat/10.1.60 (Debian)
    let said = version.lines().next().and_then(|line| line.split_once("serverInfo = "));
    let (_, version) = said.ok_or("its JMX proxy returns no version")?;
    found.version = Some(shown(version));
    found.sessions = sessions_of(sessions);
    found.sessions.truncate(AGENT_CONTEXTS_MAX);
    let all: u64 = found.sessions.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
    found.values.push(("sessions".to_owned(), all as f64));
    Ok(())
}

/// Sessions by context, prefixed with the virtual host if there are several.
fn sessions_of(said: &str) -> Vec<(String, u64)> {
    let (mut counts, mut at) = (BTreeMap::<(&str, &str), u64>::new(), None);
    for line in said.lines() {
        // Name: Catalina:type=Manager,host=localhost,context=/shop
        if let Some(name) = line.strip_prefix("Name: ") {
            let part = |key| name.split(',').find_map(|it| it.trim().strip_prefix(key));
            at = part("context=").map(|context| (part("host=").unwrap_or_default(), context));
        }
        let count: Option<u64> =
            line.strip_prefix("activeSessions: ").and_then(|it| it.trim().parse().ok());
        if let (Some(count), Some(at)) = (count, at.take_if(|_| count.is_some())) {
            let sum = counts.entry(at).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let hosts: BTreeSet<_> = counts.keys().map(|(host, _)| host).collect();
    let mut sessions = BTreeMap::<String, u64>::new();
    for ((host, context), count) in &counts {
        let host = if hosts.len() > 1 { *host } else { "" };
        // Truncation may have made two contexts equal.
        let sum = sessions.entry(shown(&format!("{host}{context}"))).or_default();
        *sum = sum.saturating_add(*count);
    }
    sessions.into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_status_of_all_connectors_is_summed() {
        // The output of Tomcat 10.1, without the memory pools.
        let body = r#"{"tomcat":{"jvm":{"memory":{"free":93,"total":129,"max":130},"memorypool":[]},
            "connector":[{"name":"http","threadInfo":{"maxThreads":200,"currentThreadCount":10,
            "currentThreadsBusy":1},"requestInfo":{"requestCount":5,"errorCount":1}},
            {"name":"ajp","threadInfo":{"maxThreads":-1,"currentThreadCount":4,
            "currentThreadsBusy":2},"requestInfo":{"requestCount":7,"errorCount":0}}]}}"#;
        let mut found = read(body).unwrap();
        let expected = [
            ("memory_free_bytes", 93.0),
            ("memory_total_bytes", 129.0),
            ("memory_max_bytes", 130.0),
            ("threads_busy", 3.0),
            ("threads", 14.0),
            ("threads_max", 200.0),
            ("requests_total", 12.0),
            ("errors_total", 1.0),
        ];
        assert_eq!(found.values, expected.map(|(name, value)| (name.to_owned(), value)));
        let version =
            "OK - Attribute get 'Catalina:type=Server' - serverInfo = Apache Tomcat/10.1.60";
        let sessions = "OK - Number of results: 2\r\n\r\nName: Catalina:type=Manager,host=localhost,\
            context=/shop\r\nactiveSessions: 3\r\nmaxActive: 9\r\n\r\nName: Catalina:type=Manager,\
            host=localhost,context=/\r\nmodelerType: x\r\nactiveSessions: 4\r\n";
        read_jmx(version, sessions, &mut found).unwrap();
        assert_eq!(found.version.as_deref(), Some("Apache Tomcat/10.1.60"));
        assert_eq!(found.sessions, [("/".to_owned(), 4), ("/shop".to_owned(), 3)]);
        assert_eq!(found.values.last(), Some(&("sessions".to_owned(), 7.0)));
        let hosts = "Name: Catalina:type=Manager,host=a,context=/\r\nactiveSessions: 1\r\n\
            Name: Catalina:type=Manager,host=b,context=/\r\nactiveSessions: 2\r\n";
        read_jmx(version, hosts, &mut found).unwrap();
        assert_eq!(found.sessions, [("a/".to_owned(), 1), ("b/".to_owned(), 2)]);
        let vast = body.replace("200", "1e308").replace("-1", "1e308").replace("93", "-1e308");
        let found_of_vast = read(&vast).unwrap();
        assert!(!found_of_vast.values.iter().any(|(name, _)| name == "threads_max"));
        assert!(!found_of_vast.values.iter().any(|(name, _)| name == "memory_free_bytes"));
        for wrong in ["<html>", "{}", r#"{"tomcat":1}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read_jmx("Error - no", "", &mut found).is_err());
    }

    #[test]
    fn the_proxy_is_beside_the_status() {
        assert_eq!(manager("/manager/status"), "/manager");
        assert_eq!(manager("/a/manager/status/all/"), "/a/manager/status");
        assert_eq!(manager("/status"), "");
    }
}
