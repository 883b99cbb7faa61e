//! Server selection: which of the members a read preference allows.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::hello::MemberKind;
use crate::read_preference::{ReadMode, ReadPreference, TagSet};
use crate::sdam::Member;

/// Indexes of members that are equally good.
pub(crate) type Choice = SmallVec<[usize; 8]>;

/// The members that may be asked, all within the latency window. The caller picks one at random.
pub(crate) fn choose(
    members: &[Member],
    preference: &ReadPreference,
    local_threshold: Duration,
    heartbeat: Duration,
) -> Choice {
    let primary = || of_kind(members, MemberKind::Primary);
    let secondaries = || {
        let fresh = fresh_enough(members, of_kind(members, MemberKind::Secondary), preference, heartbeat);
        nearest(members, tagged(members, &fresh, preference.tags()), local_threshold)
    };
    let or = |first: Choice, second: &dyn Fn() -> Choice| if first.is_empty() { second() } else { first };
    match preference.mode() {
        ReadMode::Primary => primary(),
        ReadMode::PrimaryPreferred => or(primary(), &secondaries),
        ReadMode::Secondary => secondaries(),
        ReadMode::SecondaryPreferred => or(secondaries(), &primary),
        ReadMode::Nearest => {
            let mut all =
                fresh_enough(members, of_kind(members, MemberKind::Secondary), preference, heartbeat);
            all.extend(primary());
            nearest(members, tagged(members, &all, preference.tags()), local_threshold)
        }
    }
}

fn of_kind(members: &[Member], kind: MemberKind) -> Choice {
    members.iter().enumerate().filter(|(_, member)| member.kind == kind).map(|(index, _)| index).collect()
}

fn fresh_enough(
    members: &[Member],
    secondaries: Choice,
    preference: &ReadPreference,
    heartbeat: Duration,
) -> Choice {
    let Some(limit) = preference.max_staleness() else { return secondaries };
    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    secondaries
        .into_iter()
        .filter(|index| {
            let lag = members.get(*index).and_then(|member| staleness_ms(members, member, heartbeat));
            lag.is_some_and(|lag| lag <= limit)
        })
        .collect()
}

/// How far a secondary lags, estimated as drivers do: against the primary's last write when there is a primary, else
/// against the newest write of any secondary; up to one heartbeat may have passed since it was asked.
fn staleness_ms(members: &[Member], secondary: &Member, heartbeat: Duration) -> Option<i64> {
    let (updated, last_write) = (secondary.updated?, secondary.last_write_ms?);
    let heartbeat = i64::try_from(heartbeat.as_millis()).unwrap_or(i64::MAX);
    let behind = match members.iter().find(|member| member.kind == MemberKind::Primary) {
        Some(primary) => {
            let since = signed_ms(updated, primary.updated?);
            since.saturating_add(primary.last_write_ms?.saturating_sub(last_write))
        }
        None => {
            let newest = members
                .iter()
                .filter(|member| member.kind == MemberKind::Secondary)
                .filter_map(|member| member.last_write_ms)
                .max()?;
            newest.saturating_sub(last_write)
        }
    };
    Some(behind.saturating_add(heartbeat))
}

fn signed_ms(later: Instant, earlier: Instant) -> i64 {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    match later.checked_duration_since(earlier) {
        Some(ahead) => ms(ahead),
        None => -ms(earlier.duration_since(later)),
    }
}

/// Those that match the first tag set that anybody matches.
fn tagged(members: &[Member], candidates: &Choice, sets: &[TagSet]) -> Choice {
    if sets.is_empty() {
        return candidates.clone();
    }
    let has = |member: &Member, (name, value): &(String, Option<String>)| {
        member.tags.iter().any(|tag| tag.0 == *name && Some(&tag.1) == value.as_ref())
    };
    let matching = |set: &TagSet| -> Choice {
        let all =
            |index: &usize| members.get(*index).is_some_and(|member| set.iter().all(|tag| has(member, tag)));
        candidates.iter().copied().filter(all).collect()
    };
    sets.iter().map(matching).find(|choice| !choice.is_empty()).unwrap_or_default()
}

/// Those within the threshold of the fastest. A member whose round trip is not known yet counts as slow.
fn nearest(members: &[Member], candidates: Choice, local_threshold: Duration) -> Choice {
    let round_trip =
        |index: &usize| members.get(*index).and_then(|member| member.round_trip).unwrap_or(Duration::MAX);
    let Some(fastest) = candidates.iter().map(round_trip).min() else { return candidates };
    let limit = fastest.saturating_add(local_threshold);
    candidates.into_iter().filter(|index| round_trip(index) <= limit).collect()
}
