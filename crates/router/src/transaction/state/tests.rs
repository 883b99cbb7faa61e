use proptest::prelude::*;

use super::*;

fn shard(index: u8) -> ShardId {
    ShardId::new(&format!("shard{index}"))
}

fn new() -> Transaction {
    Transaction::begin(1, ReadConcern::Plain(DocBuf::new()))
}

/// One statement that reads or writes on some shards.
fn statement(transaction: &mut Transaction, shards: &[(u8, bool)]) {
    transaction.next_statement().unwrap();
    for (index, writes) in shards {
        transaction.contact(&shard(*index), None);
        assert!(transaction.answered(&shard(*index), !writes));
    }
}

#[test]
fn the_way_to_commit_follows_from_who_wrote() {
    let shards = |indexes: &[u8]| indexes.iter().map(|index| shard(*index)).collect::<Shards>();
    for (statements, expected) in [
        (&[][..], Commit::Nothing),
        (&[(0, false)][..], Commit::One(shard(0))),
        (&[(0, true)][..], Commit::One(shard(0))),
        (&[(0, false), (1, false)][..], Commit::ReadOnly(shards(&[0, 1]))),
        (
            &[(0, false), (1, true), (2, false)][..],
            Commit::SingleWrite { readers: shards(&[0, 2]), writer: shard(1) },
        ),
        (
            &[(2, false), (1, true), (0, true)][..],
            Commit::TwoPhase { coordinator: shard(2), participants: shards(&[2, 1, 0]) },
        ),
    ] {
        let mut transaction = new();
        statement(&mut transaction, statements);
        assert_eq!(transaction.commit(), Ok(expected));
    }
}

#[test]
fn a_shard_that_got_chunks_after_its_first_statement_is_not_asked_for_them() {
    let time = |seconds| Timestamp { seconds, increment: 1 };
    let mut transaction = new();
    transaction.next_statement().unwrap();
    transaction.contact(&shard(0), Some(time(10)));
    for (index, arrived, expected) in [(0, 9, None), (0, 10, None), (0, 11, Some(time(10))), (1, 11, None)] {
        assert_eq!(transaction.conflict(&shard(index), time(arrived)), expected, "shard{index} at {arrived}");
    }
    // A later statement does not change what the shard reads at.
    transaction.contact(&shard(0), Some(time(20)));
    assert_eq!(transaction.conflict(&shard(0), time(11)), Some(time(10)));

    // A snapshot is of one time on all shards; it is chosen again only while nothing was read from it.
    for (concern, later) in
        [(ReadConcern::Snapshot(time(10)), None), (ReadConcern::Given(time(10)), Some(time(10)))]
    {
        let mut transaction = Transaction::begin(1, concern);
        transaction.next_statement().unwrap();
        assert_eq!(transaction.conflict(&shard(0), time(11)), Some(time(10)));
        transaction.read_later(Some(time(12)));
        assert_eq!(transaction.conflict(&shard(0), time(11)), later);
        transaction.contact(&shard(1), Some(time(12)));
        transaction.read_later(Some(time(15)));
        assert!(transaction.conflict(&shard(0), time(14)).is_some());
    }
}

#[test]
fn a_single_write_commit_is_recovered_the_second_time() {
    let mut transaction = new();
    statement(&mut transaction, &[(0, false), (1, true)]);
    assert!(matches!(transaction.commit(), Ok(Commit::SingleWrite { .. })));
    assert_eq!(transaction.commit(), Ok(Commit::Recover(shard(1))));
    assert_eq!(transaction.abort(), None);
}

#[test]
fn a_participant_that_never_answered_forbids_the_commit() {
    let mut transaction = new();
    statement(&mut transaction, &[(0, true)]);
    transaction.next_statement().unwrap();
    transaction.contact(&shard(1), None);
    assert_eq!(transaction.commit(), Err(NoCommit::Unanswered(shard(1))));
    assert_eq!(transaction.abort(), Some(Shards::from_iter([shard(0), shard(1)])));
    assert_eq!(transaction.commit(), Err(NoCommit::Aborted));
}

#[test]
fn only_the_first_statement_on_one_shard_is_retargeted() {
    let mut transaction = new();
    transaction.next_statement().unwrap();
    transaction.contact(&shard(0), None);
    assert!(transaction.may_retarget(&shard(0)));
    transaction.forget(&shard(0));
    assert_eq!(transaction.contact(&shard(1), None), Contact { starts: true, coordinator: true });
    transaction.contact(&shard(2), None);
    assert!(!transaction.may_retarget(&shard(1)));
    let mut transaction = new();
    statement(&mut transaction, &[(0, false)]);
    assert!(!transaction.may_retarget(&shard(0)));
    transaction.next_statement().unwrap();
    assert!(!transaction.may_retarget(&shard(0)));
}

#[derive(Debug, Clone)]
enum Step {
    Statement(Vec<(u8, Option<bool>)>),
    Forget(u8),
    Commit,
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    // `Some(true)`: the shard says that it only read so far; `None`: it answers with an error.
    let answer = (0_u8..4, proptest::option::of(any::<bool>()));
    prop_oneof![
        6 => proptest::collection::vec(answer, 0..4).prop_map(Step::Statement),
        1 => (0_u8..4).prop_map(Step::Forget),
        1 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ]
}

proptest! {
    /// A plain model: a list of (shard, what it said last), and whether the end was decided.
    #[test]
    fn participants_are_started_once_and_told_of_the_end(steps in proptest::collection::vec(step(), 0..24)) {
        let mut transaction = new();
        let mut model: Vec<(u8, Option<bool>)> = Vec::new();
        let (mut aborted, mut committed) = (false, None::<Commit>);
        for step in steps {
            match step {
                Step::Statement(answers) => {
                    let admitted = transaction.next_statement();
                    prop_assert_eq!(admitted.is_ok(), !aborted && committed.is_none());
                    if admitted.is_err() {
                        continue;
                    }
                    for (index, answer) in answers {
                        let contact = transaction.contact(&shard(index), None);
                        let known = model.iter().position(|(known, _)| *known == index);
                        prop_assert_eq!(contact.starts, known.is_none());
                        if known.is_none() {
                            model.push((index, None));
                        }
                        prop_assert_eq!(contact.coordinator, model[0].0 == index);
                        let Some(read_only) = answer else { continue };
                        let entry = model.iter_mut().find(|(known, _)| *known == index).unwrap();
                        let took_back = entry.1 == Some(false) && read_only;
                        prop_assert_eq!(transaction.answered(&shard(index), read_only), !took_back);
                        if !took_back {
                            entry.1 = Some(read_only);
                        }
                    }
                }
                Step::Forget(index) => {
                    if aborted || committed.is_some() {
                        continue;
                    }
                    transaction.forget(&shard(index));
                    model.retain(|(known, _)| *known != index);
                }
                Step::Commit => match transaction.commit() {
                    Ok(commit) => {
                        prop_assert!(!aborted);
                        prop_assert!(model.iter().all(|(_, said)| said.is_some()));
                        // Whoever wrote is told, by the router or by the coordinator.
                        let told: Shards = match &commit {
                            Commit::Nothing => Shards::new(),
                            Commit::One(only) | Commit::Recover(only) => Shards::from_iter([only.clone()]),
                            Commit::ReadOnly(all) => all.clone(),
                            Commit::SingleWrite { readers, writer } => {
                                readers.iter().cloned().chain([writer.clone()]).collect()
                            }
                            Commit::TwoPhase { coordinator, participants } => {
                                prop_assert_eq!(coordinator, &shard(model[0].0));
                                participants.clone()
                            }
                        };
                        for (index, said) in &model {
                            if *said == Some(false) || !matches!(commit, Commit::Recover(_)) {
                                prop_assert!(told.contains(&shard(*index)));
                            }
                        }
                        if let Some(first) = &committed {
                            let single = matches!(first, Commit::SingleWrite { .. });
                            prop_assert!(*first == commit || single && matches!(commit, Commit::Recover(_)));
                        } else {
                            committed = Some(commit);
                        }
                    }
                    Err(NoCommit::Aborted) => prop_assert!(aborted),
                    Err(NoCommit::Unanswered(which)) => {
                        prop_assert!(model.iter().any(|(index, said)| said.is_none() && shard(*index) == which));
                    }
                },
                Step::Abort => match transaction.abort() {
                    Some(told) => {
                        prop_assert!(committed.is_none());
                        aborted = true;
                        prop_assert_eq!(told.len(), model.len());
                    }
                    None => prop_assert!(committed.is_some()),
                },
            }
        }
    }
}
