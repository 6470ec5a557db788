//! Applications that report their status as JSON.

use serde_json::Value;

use super::{Findings, number as number_of, shown};

/// The name under which a value counts as the version.
const VERSION: &str = "version";

/// The values at these pointers (RFC 6901).
pub(super) fn read(body: &str, values: &[(String, String)]) -> Result<Findings, String> {
    let status: Value =
        serde_json::from_str(body).map_err(|error| format!("its answer is no JSON: {error}"))?;
    let mut found = Findings::default();
    for (name, pointer) in values {
        let value =
            status.pointer(pointer).ok_or_else(|| format!("its answer has no {pointer}"))?;
        if name == VERSION {
            found.version = Some(shown(value.as_str().unwrap_or(&value.to_string())));
            continue;
        }
        let number = match value {
            Value::Bool(is_so) => Some(f64::from(u8::from(*is_so))),
            value => number_of(value),
        };
        let number = number.ok_or_else(|| format!("{pointer} of its answer is no number"))?;
        found.values.push((name.clone(), number));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    #[test]
    fn values_are_where_their_pointers_say() {
        let read = |body: &str, values: &[(&str, &str)]| {
            let values: Vec<_> =
                values.iter().map(|(name, at)| (name.to_string(), at.to_string())).collect();
            super::read(body, &values)
        };
        let body = r#"{"jobs":{"waiting":[3,4.5]},"ok":true,"v":"1.2\u001b[31m","n":null}"#;
        let found =
            read(body, &[("a", "/jobs/waiting/1"), ("ok", "/ok"), ("version", "/v")]).unwrap();
        assert_eq!(found.values, [("a".to_owned(), 4.5), ("ok".to_owned(), 1.0)]);
        assert_eq!(found.version.as_deref(), Some("1.2.[31m"));
        let wrong = |body: &str, at: &str| read(body, &[("a", at)]).unwrap_err();
        assert_eq!(wrong(body, "/none"), "its answer has no /none");
        assert_eq!(wrong(body, "/n"), "/n of its answer is no number");
        assert!(wrong("<html>", "/a").starts_with("its answer is no JSON: "));
        assert!(wrong(&"[".repeat(100_000), "/a").starts_with("its answer is no JSON: "));
    }
}
