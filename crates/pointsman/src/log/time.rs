//! Dates of log lines and rotated files.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    milli: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self::at(SystemTime::now())
    }

    /// Gregorian calendar from days since 1970, counted in eras of 400 years that begin in March.
    fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let days = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Self {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted + 2) / 5 + 1,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            milli: u64::from(since.subsec_millis()),
        }
    }

    /// `2026-11-30T21:11:12.967+00:00`, or with `Z`. The offset is always that of UTC.
    pub(super) fn iso(&self, utc: bool) -> String {
        let Self { year, month, day, .. } = self;
        let zone = if utc { "Z" } else { "+00:00" };
        format!("{year:04}-{month:02}-{day:02}T{}{zone}", self.clock())
    }

    /// `21:11:12.967`
    pub(super) fn clock(&self) -> String {
        let Self { hour, minute, second, milli, .. } = self;
        format!("{hour:02}:{minute:02}:{second:02}.{milli:03}")
    }

    /// `2026-11-30T21-11-12`, as rotated files are called.
    pub(super) fn file_suffix(&self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_right() {
        for (seconds, iso) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_164_799, "2024-02-28T23:59:59.000Z"),
            (1_796_127_934, "2026-12-01T12:25:34.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
        ] {
            assert_eq!(Moment::at(UNIX_EPOCH + Duration::from_secs(seconds)).iso(true), iso);
        }
        let moment = Moment::at(UNIX_EPOCH + Duration::from_millis(1_796_127_934_967));
        assert_eq!(moment.iso(false), "2026-12-01T12:25:34.967+00:00");
        assert_eq!(moment.file_suffix(), "2026-12-01T12-25-34");
    }
}
