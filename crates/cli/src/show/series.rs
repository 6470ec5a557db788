//! Requests: over time, and now.

use skep_console::{RequestStatus, TrafficPoint, TrafficSeries};

use super::harmless::is_harmless;
use super::table::{Align, TextTable};
use super::{COLUMNS, bytes, count, duration, rate};

/// Rows that are shown, the newest: a screen.
const ROWS_MAX: usize = 30;

/// The newest steps, the newest last. What is not known has no row.
pub(crate) fn series(series: &TrafficSeries) -> String {
    let Some(newest) = series.points.last() else {
        return format!("nothing yet: the first step of {} s is not over\n", series.step_s);
    };
    let mut table = TextTable::new(&[
        ("BEFORE", Align::Right),
        ("REQ/S", Align::Right),
        ("REQUESTS", Align::Right),
        ("TO POOLS", Align::Right),
        ("FAILED", Align::Right),
        ("5XX", Align::Right),
        ("SENT", Align::Right),
    ]);
    let first = series.points.len().saturating_sub(ROWS_MAX);
    for point in &series.points[first..] {
        table.row(cells(point, newest.at_unix_s, series.step_s));
    }
    table.text(COLUMNS, |_| "")
}

fn cells(point: &TrafficPoint, newest_unix_s: u64, step_s: u64) -> [String; 7] {
    [
        duration(newest_unix_s.saturating_sub(point.at_unix_s).saturating_mul(1000)),
        rate(point.requests as f64 / step_s.max(1) as f64),
        count(point.requests),
        count(point.to_pools),
        count(point.pool_failures),
        count(point.responses_5xx),
        bytes(point.sent_bytes),
    ]
}

/// The requests that servers and nodes have now, the oldest first.
pub(crate) fn requests(requests: &[RequestStatus]) -> String {
    if requests.is_empty() {
        return "no requests\n".to_owned();
    }
    let mut table = TextTable::new(&[
        ("AGE", Align::Right),
        ("AT", Align::Left),
        ("OF", Align::Left),
        ("CLIENT", Align::Left),
        ("METHOD", Align::Left),
        ("PATH", Align::Left),
    ]);
    // What a client sends must not reach the terminal as commands.
    let plain = |text: &str| -> String {
        text.chars().map(|it| if is_harmless(it) { it } else { '.' }).collect()
    };
    for request in requests {
        let of = request.pool.as_ref().or(request.service.as_ref());
        table.row([
            duration(request.age_ms),
            request.at.clone(),
            of.cloned().unwrap_or_default(),
            request.client.to_string(),
            plain(&request.method),
            plain(&request.path),
        ]);
    }
    table.text(COLUMNS, |_| "")
}
