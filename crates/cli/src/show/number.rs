//! Numbers for people: at most six characters, with units.

/// A count, such as 999, 12.3k, 4.56M.
pub(crate) fn count(number: u64) -> String {
    scaled(number as f64, 1000.0, &["", "k", "M", "G", "T"])
}

/// A count with its noun.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A size, such as 999 B, 1.50 KiB.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Events per second, such as 0.25, 12.3, 4.56k.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        small if small < 0.01 => "<0.01".to_owned(),
        small if small < 1000.0 => three(small),
        large => scaled(large, 1000.0, &["", "k", "M", "G"]),
    }
}

/// A latency, such as 0.25 ms, 12.3 ms, 1.50 s; `-` if there is none.
pub(crate) fn latency(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        us if us < 1_000_000 => format!("{} ms", three(us as f64 / 1e3)),
        us => format!("{} s", three(us as f64 / 1e6)),
    }
}

/// A duration, such as 12s, 5m 3s, 2h 10m, 3d 4h.
pub(crate) fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m {}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {}m", s / 3600, s / 60 % 60),
        _ => format!("{}d {}h", s / 86_400, s / 3600 % 24),
    }
}

/// An age: milliseconds below one second, then as [`duration`].
pub(crate) fn age(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { duration(ms) }
}

/// A share as a percentage; `-` if the whole is 0.
pub(crate) fn permille(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// `number` in the largest suitable unit, with three digits.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut scaled = number;
    let mut at = 0;
    while scaled >= 999.5 && at + 1 < units.len() {
        scaled /= step;
        at += 1;
    }
    match at {
        0 => format!("{scaled:.0}{}", units[0]),
        at => format!("{}{}", three(scaled), units[at]),
    }
}

/// A number with three digits.
fn three(number: f64) -> String {
    match number {
        small if small < 9.995 => format!("{small:.2}"),
        middle if middle < 99.95 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.00k"),
            (12_345, "12.3k"),
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (4_560_000, "4.56M"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!((plural(1, "node"), plural(2, "node")), ("1 node".into(), "2 nodes".into()));
        assert_eq!((bytes(0), bytes(1536)), ("0 B".into(), "1.50 KiB".into()));
        assert_eq!(bytes(256 << 20), "256 MiB");
    }

    #[test]
    fn rates_and_times() {
        for (number, text) in
            [(0.0, "0"), (0.001, "<0.01"), (0.25, "0.25"), (12.34, "12.3"), (1234.0, "1.23k")]
        {
            assert_eq!(rate(number), text);
        }
        for (us, text) in [(0, "-"), (250, "0.25 ms"), (12_345, "12.3 ms"), (1_500_000, "1.50 s")] {
            assert_eq!(latency(us), text);
        }
        for (ms, text) in [
            (0, "0s"),
            (59_999, "59s"),
            (303_000, "5m 3s"),
            (7_800_000, "2h 10m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(duration(ms), text);
        }
        assert_eq!((permille(1, 0), permille(1, 8)), ("-".into(), "12.5 %".into()));
        assert_eq!((age(999), age(1_000)), ("999 ms".into(), "1s".into()));
    }
}
