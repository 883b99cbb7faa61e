//! The judge: pure logic over what the clients were told and what is there at the end.
//!
//! Every write leaves its number in what it wrote, so that for each document there is one state it must have, or two when
//! the outcome of its last operation is unknown (a client leaves a document alone after such a one).

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Action, Event, OpId, Verdict};

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An acknowledged write is not there.
    Lost,
    /// A write is there twice.
    Doubled,
    /// Something is there that was refused, deleted or never sent.
    Unexpected,
    /// A part of a write is there without the rest.
    Torn,
    /// A client did not see what it had written, or what was always there.
    Unseen,
    /// An answer that cannot be true.
    Contradiction,
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

/// A document as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) key: i64,
    pub(crate) ops: Vec<OpId>,
}

/// The record that a transfer leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) op: OpId,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) amount: i64,
}

/// Everything that is there at one point in time after the run.
#[derive(Debug, Default)]
pub(crate) struct EndState {
    pub(crate) items: Vec<Item>,
    pub(crate) accounts: Vec<(i64, i64)>,
    pub(crate) entries: Vec<Entry>,
}

/// What the accounts began with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) accounts: i64,
    pub(crate) balance: i64,
}

impl Opening {
    /// Whether a sum over all accounts, read in one snapshot, is right.
    pub(crate) fn judge_sum(self, how: &str, accounts: i64, sum: i64) -> Option<Fault> {
        let expected = (self.accounts, self.accounts * self.balance);
        ((accounts, sum) != expected).then(|| Fault {
            rule: Rule::Torn,
            text: format!("{how}: {accounts} accounts hold {sum}, not {} hold {}", expected.0, expected.1),
        })
    }
}

/// All that is wrong.
pub(crate) fn check(events: &[Event], opening: Opening, end: &EndState) -> Vec<Fault> {
    let mut faults = check_items(events, &end.items);
    faults.extend(check_transfers(events, opening, end));
    faults
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    key: i64,
    ops: Vec<OpId>,
}

/// What a document may be: absent or one state; after an unknown outcome also a second one.
#[derive(Debug, Default)]
struct Allowed {
    certain: Option<State>,
    possible: Option<Option<State>>,
}

impl Allowed {
    fn apply(&mut self, event: &Event) -> Result<(), &'static str> {
        if self.possible.is_some() {
            return Err("its client went on after an unknown outcome");
        }
        let state = |key, ops| Some(State { key, ops });
        let appended = |key: Option<i64>, before: &Option<State>| {
            before.as_ref().map(|before| {
                let mut ops = before.ops.clone();
                ops.push(event.op);
                State { key: key.unwrap_or(before.key), ops }
            })
        };
        let after = match &event.action {
            Action::Insert { key, .. } if self.certain.is_none() => state(*key, vec![event.op]),
            Action::Insert { .. } => return Err("an insert of a document that is there"),
            Action::Append { .. } => appended(None, &self.certain),
            Action::Move { to, .. } => appended(Some(*to), &self.certain),
            Action::Delete { .. } | Action::Transfer { .. } => None,
        };
        match event.verdict {
            Verdict::Acknowledged => {
                if after.is_none() && self.certain.is_none() {
                    return Err("a change of a document that is not there was acknowledged");
                }
                self.certain = after;
            }
            Verdict::Unknown => self.possible = Some(after),
            Verdict::Refused => {}
        }
        Ok(())
    }

    fn judge(&self, id: &str, found: &[&Item]) -> Option<Fault> {
        let fault = |rule, text: String| Some(Fault { rule, text: format!("{id}: {text}") });
        let item = match found {
            [] => {
                let may_be_absent = self.certain.is_none() || self.possible == Some(None);
                return if may_be_absent {
                    None
                } else {
                    fault(Rule::Lost, format!("is not there, must be {:?}", self.certain))
                };
            }
            [item] => State { key: item.key, ops: item.ops.clone() },
            more => return fault(Rule::Doubled, format!("is there {} times: {more:?}", more.len())),
        };
        let possible = self.possible.clone().flatten();
        if self.certain.as_ref() == Some(&item) || possible.as_ref() == Some(&item) {
            return None;
        }
        let mut sorted = item.ops.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair.first() == pair.last()) {
            return fault(Rule::Doubled, format!("{item:?} has an operation twice"));
        }
        let Some(nearest) = self.certain.as_ref().or(possible.as_ref()) else {
            return fault(Rule::Unexpected, format!("{item:?} is there and must not be"));
        };
        let missing: Vec<&OpId> = nearest.ops.iter().filter(|op| !item.ops.contains(op)).collect();
        if !missing.is_empty() {
            return fault(Rule::Lost, format!("{missing:?} are missing in {item:?}"));
        }
        let furthest = possible.as_ref().unwrap_or(nearest);
        let more: Vec<&OpId> = item.ops.iter().filter(|op| !furthest.ops.contains(op)).collect();
        if !more.is_empty() {
            return fault(Rule::Unexpected, format!("{more:?} are in {item:?} and must not be"));
        }
        fault(Rule::Torn, format!("{item:?} is neither {:?} nor {possible:?}", self.certain))
    }
}

fn document(action: &Action) -> Option<&str> {
    match action {
        Action::Insert { document, .. }
        | Action::Append { document }
        | Action::Move { document, .. }
        | Action::Delete { document } => Some(document),
        Action::Transfer { .. } => None,
    }
}

fn check_items(events: &[Event], items: &[Item]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut allowed: BTreeMap<&str, Allowed> = BTreeMap::new();
    for event in events {
        if let Some(id) = document(&event.action)
            && let Err(what) = allowed.entry(id).or_default().apply(event)
        {
            faults.push(Fault { rule: Rule::Contradiction, text: format!("{id}: {what} ({event:?})") });
        }
    }
    let mut found: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in items {
        found.entry(&item.id).or_default().push(item);
    }
    for (id, allowed) in &allowed {
        faults.extend(allowed.judge(id, found.get(id).map_or(&[], Vec::as_slice)));
    }
    for (id, items) in found.iter().filter(|(id, _)| !allowed.contains_key(*id)) {
        faults.push(Fault { rule: Rule::Unexpected, text: format!("{id}: nobody wrote {items:?}") });
    }
    faults
}

fn check_transfers(events: &[Event], opening: Opening, end: &EndState) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |rule, text| faults.push(Fault { rule, text });
    let mut found: BTreeMap<OpId, Vec<&Entry>> = BTreeMap::new();
    for entry in &end.entries {
        found.entry(entry.op).or_default().push(entry);
    }
    for event in events {
        let Action::Transfer { from, to, amount } = event.action else { continue };
        let expected = Entry { op: event.op, from, to, amount };
        let entries = found.remove(&event.op).unwrap_or_default();
        match (event.verdict, entries.as_slice()) {
            (Verdict::Acknowledged | Verdict::Unknown, [entry]) if **entry == expected => {}
            (Verdict::Refused | Verdict::Unknown, []) => {}
            (Verdict::Acknowledged, []) => fault(Rule::Lost, format!("{event:?} has no entry")),
            (Verdict::Refused, [_]) => {
                fault(Rule::Unexpected, format!("{event:?} was refused and has an entry"));
            }
            (_, [entry]) => fault(Rule::Torn, format!("{event:?} has the entry {entry:?}")),
            (_, entries) => fault(Rule::Doubled, format!("{event:?} has {} entries", entries.len())),
        }
    }
    for entries in found.values() {
        fault(Rule::Unexpected, format!("nobody made {entries:?}"));
    }
    let mut expected: BTreeMap<i64, i64> = (0..opening.accounts).map(|id| (id, opening.balance)).collect();
    for entry in &end.entries {
        *expected.entry(entry.from).or_default() -= entry.amount;
        *expected.entry(entry.to).or_default() += entry.amount;
    }
    let mut seen = BTreeMap::new();
    for (id, balance) in &end.accounts {
        if seen.insert(*id, *balance).is_some() {
            fault(Rule::Doubled, format!("account {id} is there twice"));
        }
    }
    for (id, balance) in &expected {
        match seen.get(id) {
            None => fault(Rule::Lost, format!("account {id} is not there")),
            Some(found) if found != balance => {
                fault(Rule::Torn, format!("account {id} holds {found}, its entries make {balance}"));
            }
            Some(_) => {}
        }
    }
    faults
}

/// What a client reads of its own document, in a causal session, after all of `written` was acknowledged.
pub(crate) fn judge_own_read(id: &str, key: i64, written: &[OpId], found: Option<&Item>) -> Option<Fault> {
    let unseen = |text: String| Some(Fault { rule: Rule::Unseen, text: format!("{id}: {text}") });
    match found {
        None => unseen(format!("its writer read nothing after it wrote {written:?}")),
        Some(item) if item.ops != written || item.key != key => {
            unseen(format!("its writer read {item:?} after it wrote {written:?} at key {key}"))
        }
        Some(_) => None,
    }
}
