//! Which event is next: pure.
//!
//! An event may be handed out when no other stream can still bring an earlier one: each stream without an event at hand has
//! promised, by the token of its last answer, how far it is read.

/// What is known of one stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Token of its next event, if one is at hand.
    pub(super) next: Option<&'a str>,
    /// All that is to come is behind this.
    pub(super) promised: &'a str,
    /// It has ended: what it promised was its end (an invalidation).
    pub(super) ended: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Hand out the event of this stream.
    Event(usize),
    /// Ask the streams that have nothing at hand.
    Ask,
    /// The whole stream ends here.
    End,
}

/// Chooses. Ties go to the first stream.
pub(super) fn next(places: &[Place<'_>]) -> Next {
    let first = places
        .iter()
        .enumerate()
        .filter_map(|(index, place)| Some((place.next?, index)))
        .min_by(|(left, _), (right, _)| left.cmp(right));
    let mut end: Option<&str> = None;
    let mut held = false;
    for place in places.iter().filter(|place| place.next.is_none()) {
        let before_first = first.is_none_or(|(token, _)| place.promised < token);
        if place.ended {
            end = Some(end.map_or(place.promised, |end| end.min(place.promised)));
        } else if before_first {
            held = true;
        }
    }
    match (first, end) {
        // The end is handed out in order too: open streams may still have events before it.
        (_, Some(end)) if first.is_none_or(|(token, _)| end <= token) => {
            let earlier =
                places.iter().any(|place| place.next.is_none() && !place.ended && place.promised < end);
            if earlier { Next::Ask } else { Next::End }
        }
        (Some((_, index)), _) if !held => Next::Event(index),
        _ => Next::Ask,
    }
}

/// The streams that keep the first event at hand (or the end) back, with the token they must pass.
pub(super) fn holders<'a>(places: &[Place<'a>]) -> Option<(&'a str, Vec<usize>)> {
    let waits =
        places.iter().filter_map(|place| place.next.or(place.ended.then_some(place.promised))).min()?;
    let holders = places
        .iter()
        .enumerate()
        .filter(|(_, place)| place.next.is_none() && !place.ended && place.promised < waits)
        .map(|(index, _)| index)
        .collect();
    Some((waits, holders))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(next: Option<&'static str>, promised: &'static str) -> Place<'static> {
        Place { next, promised, ended: false }
    }

    const fn ended(promised: &'static str) -> Place<'static> {
        Place { next: None, promised, ended: true }
    }

    #[test]
    fn an_event_waits_for_the_promises_of_the_others() {
        assert_eq!(next(&[at(Some("5"), "1"), at(None, "6")]), Next::Event(0));
        assert_eq!(next(&[at(Some("5"), "1"), at(None, "5")]), Next::Event(0));
        assert_eq!(next(&[at(Some("5"), "1"), at(None, "4")]), Next::Ask);
        assert_eq!(next(&[at(Some("5"), "1"), at(Some("3"), "1")]), Next::Event(1));
        assert_eq!(next(&[at(Some("3"), "1"), at(Some("3"), "1")]), Next::Event(0));
        assert_eq!(next(&[at(None, "9"), at(None, "9")]), Next::Ask);
    }

    #[test]
    fn an_end_comes_in_its_turn() {
        assert_eq!(next(&[ended("5"), at(None, "6")]), Next::End);
        assert_eq!(next(&[ended("5"), at(None, "4")]), Next::Ask);
        assert_eq!(next(&[ended("5"), at(Some("4"), "1")]), Next::Event(1));
        assert_eq!(next(&[ended("5"), at(Some("7"), "1")]), Next::End);
        assert_eq!(next(&[ended("5"), at(Some("7"), "1"), at(None, "3")]), Next::Ask);
        assert_eq!(next(&[ended("5"), ended("4")]), Next::End);
        // Shards that drop a collection at the same time all say so: once is enough.
        assert_eq!(next(&[ended("5"), at(Some("5"), "1")]), Next::End);
    }

    #[test]
    fn those_who_hold_an_event_back_are_named() {
        let places = [at(Some("5"), "1"), at(None, "4"), at(None, "7"), at(Some("6"), "1")];
        assert_eq!(holders(&places), Some(("5", vec![1])));
        assert_eq!(holders(&[at(None, "4")]), None);
        assert_eq!(holders(&[ended("5"), at(None, "4")]), Some(("5", vec![1])));
    }
}
