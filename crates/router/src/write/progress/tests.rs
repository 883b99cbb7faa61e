use std::collections::BTreeMap;

use chunk_map::ShardId;
use document::{Doc, DocBuf};

use super::{Answer, Child, Plan, Progress, Spreading};
use crate::codes::ErrorCode;
use crate::error::CommandError;
use crate::remote::routing::{Destination, Versions};
use crate::write::statement::Kind;

fn child(shard: &str, statements: &[u32], broadcast: bool) -> Child {
    let destination = Destination { shard: ShardId::new(shard), versions: Versions::None };
    Child { destination, statements: statements.to_vec(), broadcast, bytes: 0 }
}

fn error(code: ErrorCode) -> CommandError {
    CommandError::new(code, "text")
}

fn answer(n: i64, errors: &[(u32, ErrorCode)]) -> Result<Answer, CommandError> {
    let errors = errors.iter().map(|(place, code)| (*place, error(*code))).collect();
    Ok(Answer { n, errors, ..Answer::default() })
}

/// One round; gives how many stale errors there were.
fn round(
    progress: &mut Progress,
    left: &[u32],
    answers: Vec<(Child, Result<Answer, CommandError>)>,
) -> usize {
    let (children, answers): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let mut spread: Vec<(u32, Spreading)> = Vec::new();
    for child in &children {
        for statement in &child.statements {
            let elsewhere = children.iter().filter(|other| other.statements.contains(statement)).count() > 1;
            let how = if child.broadcast { Spreading::All } else { Spreading::Any };
            if (child.broadcast || elsewhere) && !spread.contains(&(*statement, how)) {
                spread.push((*statement, how));
            }
        }
    }
    let mut plan = Plan { children, spread, left: left.to_vec(), ..Plan::default() };
    progress.begin(&mut plan);
    let mut stale = 0;
    for (child, answer) in plan.children.iter().zip(answers) {
        progress.record(child, answer, |_| stale += 1);
    }
    progress.end();
    stale
}

fn due(progress: &Progress) -> Vec<u32> {
    progress.due().collect()
}

/// `n` and the codes of the errors by their indexes.
fn reply(progress: Progress, ordered: bool, len: usize) -> (i64, BTreeMap<i64, i64>) {
    let reply = progress.outcome.into_reply(Kind::Insert, ordered, len);
    let errors = reply.body().get_array("writeErrors").unwrap_or(Doc::empty());
    let errors = errors.iter().map(|item| {
        let item = item.value().as_doc().unwrap();
        (item.get_i64("index").unwrap(), item.get_i64("code").unwrap())
    });
    (reply.body().get_i64("n").unwrap(), errors.collect())
}

const STALE: ErrorCode = ErrorCode::StaleConfig;
const DUPLICATE: ErrorCode = ErrorCode::DuplicateKey;

#[test]
fn ordered_goes_on_behind_what_was_applied() {
    let mut progress = Progress::new(5, true);
    assert_eq!(round(&mut progress, &[], vec![(child("a", &[0, 1], false), answer(2, &[]))]), 0);
    assert_eq!(due(&progress), [2, 3, 4]);
    // A stale statement and all behind it were not applied.
    assert_eq!(round(&mut progress, &[], vec![(child("b", &[2, 3, 4], false), answer(1, &[(1, STALE)]))]), 1);
    assert_eq!((due(&progress), progress.settled()), (vec![3, 4], 3));
    // An error ends the batch.
    round(&mut progress, &[], vec![(child("a", &[3, 4], false), answer(0, &[(0, DUPLICATE)]))]);
    assert!(progress.is_finished());
    assert_eq!(reply(progress, true, 5), (3, BTreeMap::from([(3, 11000)])));
}

#[test]
fn unordered_sends_again_what_was_stale_and_what_was_left() {
    let mut progress = Progress::new(6, false);
    let answers = vec![
        (child("a", &[0, 2, 4], false), answer(1, &[(0, STALE), (2, DUPLICATE)])),
        (child("b", &[1], false), answer(1, &[])),
        (child("c", &[5], false), Err(error(STALE))),
    ];
    assert_eq!(round(&mut progress, &[3], answers), 2);
    assert_eq!((due(&progress), progress.settled()), (vec![0, 3, 5], 3));
    round(&mut progress, &[], vec![(child("b", &[0, 3, 5], false), answer(3, &[]))]);
    assert!(progress.is_finished());
    assert_eq!(reply(progress, false, 6), (5, BTreeMap::from([(4, 11000)])));
}

#[test]
fn a_lost_answer_fails_the_first_or_all_statements() {
    for (ordered, failed) in [(true, vec![0]), (false, vec![0, 1, 2])] {
        let mut progress = Progress::new(3, ordered);
        let lost = Err(error(ErrorCode::HostUnreachable));
        round(&mut progress, &[], vec![(child("a", &[0, 1, 2], false), lost)]);
        assert!(progress.is_finished());
        let errors = reply(progress, ordered, 3).1;
        assert_eq!(errors.keys().copied().collect::<Vec<_>>(), failed);
    }
}

#[test]
fn a_broadcast_statement_is_applied_once_by_each_shard() {
    for ordered in [true, false] {
        let mut progress = Progress::new(2, ordered);
        let stale = round(
            &mut progress,
            if ordered { &[] } else { &[1] },
            vec![
                (child("a", &[0], true), answer(2, &[])),
                (child("b", &[0], true), answer(0, &[(0, STALE)])),
            ],
        );
        assert_eq!((stale, due(&progress)), (1, vec![0, 1]));
        assert_eq!(progress.taken(0).unwrap().to_vec(), [ShardId::new("a")]);
        round(
            &mut progress,
            if ordered { &[] } else { &[1] },
            vec![(child("b", &[0], true), answer(3, &[]))],
        );
        assert_eq!((due(&progress), progress.settled()), (vec![1], 1));
        assert_eq!(reply(progress, ordered, 2), (5, BTreeMap::new()));
    }
}

#[test]
fn errors_of_several_shards_become_one() {
    for (codes, wanted) in [
        ([DUPLICATE, DUPLICATE], 11000),
        ([DUPLICATE, ErrorCode::BadValue], 65),
        ([STALE, ErrorCode::BadValue], 2),
    ] {
        let mut progress = Progress::new(1, true);
        let answers = ["a", "b"]
            .iter()
            .zip(codes)
            .map(|(shard, code)| (child(shard, &[0], true), answer(0, &[(0, code)])))
            .collect();
        round(&mut progress, &[], answers);
        assert!(progress.is_finished());
        assert_eq!(reply(progress, true, 1).1, BTreeMap::from([(0, wanted)]), "{codes:?}");
    }
}

#[test]
fn an_abort_fails_what_is_due() {
    for (ordered, failed) in [(true, vec![1]), (false, vec![1, 2])] {
        let mut progress = Progress::new(3, ordered);
        let left: &[u32] = if ordered { &[] } else { &[1, 2] };
        round(&mut progress, left, vec![(child("a", &[0], false), answer(1, &[]))]);
        progress.abort(&error(ErrorCode::NoProgressMade));
        assert!(progress.is_finished());
        let (n, errors) = reply(progress, ordered, 3);
        assert_eq!((n, errors.keys().copied().collect::<Vec<_>>()), (1, failed));
    }
}

#[test]
fn places_in_a_child_become_the_clients_indexes() {
    let mut progress = Progress::new(4, false);
    let mut id = DocBuf::new();
    id.append("_id", 7);
    let upserted = Answer { n: 2, upserted: vec![(1, id)], ..Answer::default() };
    round(&mut progress, &[], vec![(child("a", &[1, 3], false), Ok(upserted))]);
    let reply = progress.outcome.into_reply(Kind::Update, false, 4);
    let item = reply.body().get_array("upserted").unwrap().first().unwrap().value().as_doc().unwrap();
    assert_eq!((item.get_i64("index"), item.get_i64("_id")), (Some(3), Some(7)));
}

#[test]
fn the_statement_that_moves_its_document_is_found_by_halves() {
    let mover = 5_u32;
    for ordered in [true, false] {
        let mut progress = Progress::new(9, ordered);
        let mut rounds = 0;
        while !progress.is_finished() {
            let statements: Vec<u32> = progress.due().take(progress.most()).collect();
            let left: Vec<u32> = progress.due().skip(statements.len()).collect();
            let result = if statements.contains(&mover) {
                Err(error(ErrorCode::WouldChangeOwningShard))
            } else {
                answer(i64::try_from(statements.len()).unwrap(), &[])
            };
            let left = if ordered { &[][..] } else { &*left };
            round(&mut progress, left, vec![(child("a", &statements, false), result)]);
            rounds += 1;
            assert!(rounds < 12, "{progress:?}");
        }
        assert!(progress.take_moving().is_none());
        let n = if ordered { 5 } else { 8 };
        assert_eq!(reply(progress, ordered, 9), (n, BTreeMap::from([(5, 72)])));
    }
    let mut progress = Progress::new(1, true);
    let moves = Err(error(ErrorCode::WouldChangeOwningShard));
    round(&mut progress, &[], vec![(child("a", &[0], false), moves)]);
    assert!(progress.take_moving().is_some());
}

#[test]
fn all_look_again_for_a_document_that_none_found_while_one_was_stale() {
    for ordered in [true, false] {
        let mut progress = Progress::new(2, ordered);
        let left: &[u32] = if ordered { &[] } else { &[1] };
        let both = |a, b| vec![(child("a", &[0], false), a), (child("b", &[0], false), b)];
        round(&mut progress, left, both(answer(0, &[]), answer(0, &[(0, STALE)])));
        assert_eq!((due(&progress), progress.settled()), (vec![0, 1], 0));
        assert!(progress.taken(0).is_none_or(|taken| taken.is_empty()));
        // Found: what the other says does not matter.
        round(&mut progress, left, both(answer(1, &[]), answer(0, &[(0, STALE)])));
        assert_eq!((due(&progress), progress.settled()), (vec![1], 1));
        assert_eq!(reply(progress, ordered, 2), (1, BTreeMap::new()));
    }
    // Deletes of one batch: nobody says which of them were found.
    let mut progress = Progress::new(2, false);
    let answers = vec![
        (child("a", &[0, 1], false), answer(1, &[])),
        (child("b", &[0, 1], false), answer(0, &[(0, STALE), (1, STALE)])),
    ];
    round(&mut progress, &[], answers);
    assert_eq!(due(&progress), [0, 1]);
    // By the new table the first is for one shard alone.
    let answers =
        vec![(child("a", &[0, 1], false), answer(1, &[])), (child("b", &[1], false), answer(0, &[]))];
    round(&mut progress, &[], answers);
    assert!(progress.is_finished());
    assert_eq!(reply(progress, false, 2), (2, BTreeMap::new()));
}

/// An answer that calls these places of the child retried.
fn retried(n: i64, places: &[u32]) -> Result<Answer, CommandError> {
    Ok(Answer { n, n_modified: n, retried_places: places.to_vec(), ..Answer::default() })
}

#[test]
fn a_retried_statement_counts_once_when_its_document_has_moved_with_its_history() {
    for broadcast in [false, true] {
        let mut progress = Progress::new(1, true);
        let answers = vec![
            (child("a", &[0], broadcast), retried(1, &[0])),
            (child("b", &[0], broadcast), retried(1, &[0])),
        ];
        round(&mut progress, &[], answers);
        assert!(progress.is_finished());
        assert_eq!(reply(progress, true, 1), (1, BTreeMap::new()));
    }
}

#[test]
fn a_statement_counts_once_when_its_document_moves_with_its_history_meanwhile() {
    // Its old shard did it, its new one has that in its history by then; whichever answers first.
    for turned in [false, true] {
        for broadcast in [false, true] {
            let mut progress = Progress::new(1, true);
            let mut answers = vec![
                (child("a", &[0], broadcast), answer(1, &[])),
                (child("b", &[0], broadcast), retried(1, &[0])),
            ];
            if turned {
                answers.reverse();
            }
            round(&mut progress, &[], answers);
            assert!(progress.is_finished());
            assert_eq!(reply(progress, true, 1), (1, BTreeMap::new()));
        }
    }
    // In a batch of three, one of which finds nothing on one shard and one of which moves.
    let mut progress = Progress::new(3, false);
    let answers = vec![
        (child("a", &[0, 1, 2], false), answer(2, &[])),
        (child("b", &[0, 1, 2], false), retried(2, &[1, 2])),
    ];
    round(&mut progress, &[], answers);
    assert_eq!(reply(progress, false, 3), (3, BTreeMap::new()));
    // Done on one shard in an earlier round, called retried by another one in the next.
    let mut progress = Progress::new(1, true);
    round(
        &mut progress,
        &[],
        vec![(child("a", &[0], true), answer(1, &[])), (child("b", &[0], true), answer(0, &[(0, STALE)]))],
    );
    round(&mut progress, &[], vec![(child("b", &[0], true), retried(1, &[0]))]);
    assert!(progress.is_finished());
    assert_eq!(reply(progress, true, 1), (1, BTreeMap::new()));
}

#[test]
fn a_retried_statement_counts_when_its_shard_was_stale_at_first() {
    let mut progress = Progress::new(1, true);
    let both = |a, b| vec![(child("a", &[0], false), a), (child("b", &[0], false), b)];
    round(&mut progress, &[], both(answer(0, &[]), answer(0, &[(0, STALE)])));
    round(&mut progress, &[], both(answer(0, &[]), retried(1, &[0])));
    assert!(progress.is_finished());
    assert_eq!(reply(progress, true, 1), (1, BTreeMap::new()));
    // What a shard deleted in the first round it calls retried in the second one.
    let mut progress = Progress::new(2, false);
    let answers = vec![
        (child("a", &[0, 1], false), answer(1, &[])),
        (child("b", &[0, 1], false), answer(0, &[(0, STALE), (1, STALE)])),
    ];
    round(&mut progress, &[], answers);
    let answers =
        vec![(child("a", &[0, 1], false), retried(1, &[0])), (child("b", &[0, 1], false), answer(1, &[]))];
    round(&mut progress, &[], answers);
    assert!(progress.is_finished());
    assert_eq!(reply(progress, false, 2), (2, BTreeMap::new()));
}
