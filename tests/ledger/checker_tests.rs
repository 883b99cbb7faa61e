//! The checker itself: a history with a lost, doubled or torn write must not pass.

use crate::checker::{EndState, Entry, Item, Opening, Rule, check, judge_own_read};
use crate::history::{Action, Event, OpId, Verdict};

const OPENING: Opening = Opening { accounts: 3, balance: 100 };

fn event(op: OpId, verdict: Verdict, action: Action) -> Event {
    Event { op, kind: "test", action, verdict }
}

fn insert(op: OpId, verdict: Verdict) -> Event {
    event(op, verdict, Action::Insert { document: "a".into(), key: 7 })
}

fn append(op: OpId, verdict: Verdict) -> Event {
    event(op, verdict, Action::Append { document: "a".into() })
}

fn delete(op: OpId, verdict: Verdict) -> Event {
    event(op, verdict, Action::Delete { document: "a".into() })
}

fn change_key(op: OpId, verdict: Verdict) -> Event {
    event(op, verdict, Action::Move { document: "a".into(), to: 9 })
}

fn transfer(op: OpId, verdict: Verdict) -> Event {
    event(op, verdict, Action::Transfer { from: 0, to: 1, amount: 5 })
}

fn item(key: i64, ops: &[OpId]) -> Item {
    Item { id: "a".into(), key, ops: ops.to_vec() }
}

fn rules(events: &[Event], end: &EndState) -> Vec<Rule> {
    check(events, OPENING, end).into_iter().map(|fault| fault.rule).collect()
}

/// The accounts untouched.
fn with_items(items: &[Item]) -> EndState {
    EndState { items: items.to_vec(), accounts: vec![(0, 100), (1, 100), (2, 100)], entries: Vec::new() }
}

fn with_transfers(balances: [i64; 3], ops: &[OpId]) -> EndState {
    EndState {
        items: Vec::new(),
        accounts: (0..).zip(balances).collect(),
        entries: ops.iter().map(|op| Entry { op: *op, from: 0, to: 1, amount: 5 }).collect(),
    }
}

use Verdict::{Acknowledged, Refused, Unknown};

#[test]
fn what_was_acknowledged_is_there_once() {
    let events = [insert(1, Acknowledged), append(2, Acknowledged), append(3, Refused)];
    assert_eq!(rules(&events, &with_items(&[item(7, &[1, 2])])), []);
    assert_eq!(rules(&events, &with_items(&[])), [Rule::Lost]);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), [Rule::Lost]);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1, 2, 2])])), [Rule::Doubled]);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1, 2, 3])])), [Rule::Unexpected]);
    assert_eq!(rules(&events, &with_items(&[item(7, &[2, 1])])), [Rule::Torn]);
    assert_eq!(
        rules(&events, &with_items(&[item(7, &[1, 2]), item(7, &[1, 2])])),
        [Rule::Doubled],
        "two documents"
    );
}

#[test]
fn what_is_unknown_is_there_at_most_once() {
    let events = [insert(1, Acknowledged), append(2, Unknown)];
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1, 2])])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1, 2, 2])])), [Rule::Doubled]);
    assert_eq!(rules(&events, &with_items(&[])), [Rule::Lost]);
    let events = [insert(1, Unknown)];
    assert_eq!(rules(&events, &with_items(&[])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), []);
    assert_eq!(rules(&events, &with_items(&[item(8, &[1])])), [Rule::Torn]);
    let events = [insert(1, Acknowledged), delete(2, Unknown)];
    assert_eq!(rules(&events, &with_items(&[])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), []);
}

#[test]
fn what_was_deleted_stays_away_and_what_came_back_is_new() {
    let events = [insert(1, Acknowledged), delete(2, Acknowledged)];
    assert_eq!(rules(&events, &with_items(&[])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), [Rule::Unexpected]);
    let events = [insert(1, Acknowledged), delete(2, Acknowledged), insert(3, Acknowledged)];
    assert_eq!(rules(&events, &with_items(&[item(7, &[3])])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), [Rule::Lost], "the old one came back");
    assert_eq!(rules(&[insert(1, Refused)], &with_items(&[item(7, &[1])])), [Rule::Unexpected]);
    assert_eq!(rules(&[], &with_items(&[item(7, &[1])])), [Rule::Unexpected], "nobody wrote it");
}

#[test]
fn a_document_that_moves_is_on_one_side() {
    let events = [insert(1, Acknowledged), change_key(2, Acknowledged)];
    assert_eq!(rules(&events, &with_items(&[item(9, &[1, 2])])), []);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1, 2])])), [Rule::Torn]);
    assert_eq!(rules(&events, &with_items(&[item(7, &[1]), item(9, &[1, 2])])), [Rule::Doubled]);
    assert_eq!(rules(&events, &with_items(&[])), [Rule::Lost]);
    let events = [insert(1, Acknowledged), change_key(2, Unknown)];
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), []);
    assert_eq!(rules(&events, &with_items(&[item(9, &[1, 2])])), []);
    assert_eq!(rules(&events, &with_items(&[item(9, &[1])])), [Rule::Torn]);
}

#[test]
fn a_transfer_is_whole_or_not_at_all() {
    let events = [transfer(1, Acknowledged), transfer(2, Refused), transfer(3, Unknown)];
    assert_eq!(rules(&events, &with_transfers([95, 105, 100], &[1])), []);
    assert_eq!(rules(&events, &with_transfers([90, 110, 100], &[1, 3])), []);
    assert_eq!(rules(&events, &with_transfers([100, 100, 100], &[])), [Rule::Lost]);
    assert_eq!(rules(&events, &with_transfers([90, 110, 100], &[1, 2])), [Rule::Unexpected]);
    assert_eq!(rules(&events, &with_transfers([90, 110, 100], &[1, 1])), [Rule::Doubled]);
    assert_eq!(rules(&events, &with_transfers([95, 100, 100], &[1])), [Rule::Torn], "one half");
    assert_eq!(rules(&events, &with_transfers([90, 110, 100], &[1])), [Rule::Torn, Rule::Torn], "no entry");
    let mut end = with_transfers([95, 105, 100], &[1]);
    end.accounts.push((2, 100));
    assert_eq!(rules(&events, &end), [Rule::Doubled]);
    end.accounts.truncate(2);
    assert_eq!(rules(&events, &end), [Rule::Lost]);
}

#[test]
fn sums_and_own_reads_are_judged() {
    assert_eq!(OPENING.judge_sum("find", 3, 300), None);
    assert_eq!(OPENING.judge_sum("find", 3, 295).map(|fault| fault.rule), Some(Rule::Torn));
    assert_eq!(OPENING.judge_sum("find", 4, 300).map(|fault| fault.rule), Some(Rule::Torn));
    assert_eq!(judge_own_read("a", 7, &[1, 2], Some(&item(7, &[1, 2]))), None);
    for found in [None, Some(&item(7, &[1])), Some(&item(9, &[1, 2]))] {
        assert_eq!(judge_own_read("a", 7, &[1, 2], found).map(|fault| fault.rule), Some(Rule::Unseen));
    }
}

#[test]
fn a_history_that_cannot_be_judged_is_a_fault_of_its_own() {
    let events = [insert(1, Unknown), append(2, Acknowledged)];
    assert_eq!(rules(&events, &with_items(&[item(7, &[1])])), [Rule::Contradiction]);
    let events = [append(1, Acknowledged)];
    assert_eq!(rules(&events, &with_items(&[])), [Rule::Contradiction]);
}
