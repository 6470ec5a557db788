//! Times of access logs, as milliseconds since 1970, UTC.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `10/Oct/2000:13:55:36 -0700`.
pub(super) fn of_common(time: &str) -> Option<u64> {
    let (local, zone) = time.split_once(' ')?;
    let mut parts = local.split(['/', ':']);
    let day = parts.next()?.parse().ok()?;
    let month_name = parts.next()?;
    let month = MONTHS.iter().position(|it| *it == month_name)? as i64 + 1;
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, clock) = (number()?, [number()?, number()?, number()?]);
    if parts.next().is_some() {
        return None;
    }
    let seconds = seconds([year, month, day], clock)? - zone_s(zone)?;
    u64::try_from(seconds).ok()?.checked_mul(1_000)
}

/// `2000-10-10T20:55:36.250Z`.
pub(super) fn of_json(time: &str) -> Option<u64> {
    let (date, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let (clock, ms) = clock.split_once('.')?;
    let three = |text: &str, mark| {
        let mut parts = text.split(mark).map(|it: &str| it.parse::<i64>().ok());
        let all = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(all)
    };
    let seconds = u64::try_from(seconds(three(date, '-')?, three(clock, ':')?)?).ok()?;
    let ms = (ms.len() == 3).then(|| ms.parse::<u16>().ok())??;
    Some(seconds * 1_000 + u64::from(ms))
}

/// Seconds since 1970 for a year, month and day, and an hour, minute and second.
fn seconds([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3]) -> Option<i64> {
    // 60: a leap second.
    let is_time =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    let is_date =
        (1..=31).contains(&day) && (1..=12).contains(&month) && (1970..10_000).contains(&year);
    (is_time && is_date)
        .then(|| days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The offset of a zone such as `-0700` from UTC, in seconds.
fn zone_s(zone: &str) -> Option<i64> {
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let digits = zone.get(1..).filter(|it| it.len() == 4)?;
    let number: i64 = digits.parse().ok().filter(|it| *it >= 0)?;
    Some(sign * (number / 100 * 3_600 + number % 100 * 60))
}

/// Days since 1970 in the Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
