//! Values with a unit, as they are written in the file.

use std::time::Duration;

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};
use toml::value::{Datetime, Offset};

use crate::clock::Timestamp;

/// A span such as `45s`, `10m` or `1h 30m`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

/// A span the way it is written in the file.
pub(super) fn show_duration(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}

/// A number of bytes such as `512`, `16 KiB` or `8MiB`. Only binary units: they say what they mean.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start_matches(' ') {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of bytes the way it is written in the file.
pub(super) fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// The moment a TOML date-time with an offset names; `None` for a local date or time, for a day
/// that does not exist, and for moments before 1970.
pub(super) fn moment(value: &Datetime) -> Option<Timestamp> {
    let (date, clock, offset) = (value.date?, value.time?, value.offset?);
    let month = Month::try_from(date.month).ok()?;
    let day = Date::from_calendar_date(i32::from(date.year), month, date.day).ok()?;
    let nanos = clock.nanosecond.unwrap_or(0);
    // A leap second is read as the second before it, as the system clock smears it.
    let second = clock.second.unwrap_or(0).min(59);
    let time = Time::from_hms_nano(clock.hour, clock.minute, second, nanos).ok()?;
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => minutes,
    };
    let offset = UtcOffset::from_whole_seconds(i32::from(minutes) * 60).ok()?;
    let at = OffsetDateTime::new_in_offset(day, time, offset).unix_timestamp_nanos();
    u64::try_from(at / 1_000_000).ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("16 KiB"), Some(16 * 1024));
        assert_eq!(size("8MiB"), Some(8 << 20));
        for bad in ["", "KiB", "16 KB", "-1", "1.5 MiB", "99999999999 GiB", "١"] {
            assert_eq!(size(bad), None, "{bad}");
        }
        for bytes in [0, 1, 1023, 1024, 16 << 10, 3 << 30] {
            assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
    }

    #[test]
    fn a_moment_needs_an_offset() {
        let read = |text: &str| moment(&text.parse().unwrap());
        let utc = read("2025-11-30T22:00:00Z");
        assert_eq!(utc, Some(Timestamp::from_millis(1_764_540_000_000)));
        assert_eq!(read("2025-12-01T07:00:00+09:00"), utc);
        for local in ["2025-11-30T22:00:00", "2025-11-30", "22:00:00", "1960-01-01T00:00:00Z"] {
            assert_eq!(read(local), None, "{local}");
        }
    }
}
